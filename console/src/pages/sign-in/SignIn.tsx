import { useEffect, useRef, useState, type ReactNode, type SubmitEvent } from 'react';

import { BASE_PATH, BASE_URL } from '../../api/address';
import { sendAs } from '../../api/client';
import { Problem } from '../../api/problem';
import type { OpenedSession } from '../../api/types';
import { keepSession, lastSession } from '../../api/session';
import { Button, buttonClasses } from '../../ui/Button';
import { classes } from '../../ui/classes';
import { CopyBlock } from '../../ui/Copy';
import { Field, Input } from '../../ui/Field';
import { Foreign } from '../../ui/Foreign';
import { Mark } from '../../ui/Mark';
import { words } from '../../words';
import { noteStart, useIssuer } from './issuer';
import styles from './SignIn.module.css';
import { confirmTicket, forgetTicket, type TicketState } from './ticket';

const { signIn: say } = words;

/** The ways in: a ticket of the terminal, a key, or the issuer. With `over` it lies over a page whose session ended. */
export function SignIn({ ticket, over }: { ticket: TicketState; over: boolean }) {
  return (
    <div className={classes(styles.place, over && styles.over)} role="dialog" aria-modal aria-label={say.title}>
      <div className={styles.card}>
        <div className={styles.brand}>
          <Mark /> {words.product}
        </div>
        {ticket.state === 'redeeming' && <p className={styles.text}>{say.redeeming}</p>}
        {ticket.state === 'confirm' && <ConfirmPerson opened={ticket.opened} />}
        {ticket.state === 'failed' && <FailedTicket problem={ticket.problem} />}
        {ticket.state === 'none' && <Ways over={over} />}
      </div>
    </div>
  );
}

function Ways({ over }: { over: boolean }) {
  const issuer = useIssuer();
  return (
    <>
      <div>
        <h1 className={styles.title}>{over ? say.again : say.title}</h1>
        {over && <p className={styles.text}>{say.kept}</p>}
      </div>
      {!window.isSecureContext && <p className={styles.note}>{say.insecure}</p>}
      {issuer && <IssuerWay />}
      <KeyWay secondary={issuer} />
      <div className={styles.or}>{say.onThisMachine}</div>
      <CopyBlock text="toolpost open" label={words.copy} />
    </>
  );
}

function IssuerWay() {
  const to = location.pathname.slice(BASE_PATH.length) + location.search; // the gateway adds the prefix
  return (
    <>
      <a className={buttonClasses('primary', 'l')} href={`${BASE_URL}/sign-in/start?to=${encodeURIComponent(to)}`} onClick={noteStart}>
        {say.withIssuer}
      </a>
      <div className={styles.or}>{say.or}</div>
    </>
  );
}

function KeyWay({ secondary }: { secondary: boolean }) {
  const [key, setKey] = useState('');
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem>();
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.focus(), []);

  async function signIn(event: SubmitEvent) {
    event.preventDefault();
    if (busy || key.trim() === '') return;
    setBusy(true);
    setProblem(undefined);
    try {
      const opened = await sendAs<OpenedSession>(key.trim(), '/api/v1/sessions', { method: 'POST' });
      setKey('');
      keepSession(opened);
    } catch (error) {
      setProblem(Problem.of(error));
    } finally {
      setBusy(false);
    }
  }

  return (
    <form className={styles.form} onSubmit={(event) => void signIn(event)}>
      <Field
        label={say.key}
        hint={say.keyHint}
        error={problem && <Foreign text={problem.status === 401 ? say.wrongKey : problem.detail} block />}
      >
        {(field) => (
          <Input
            {...field}
            ref={input}
            type="password"
            name="key"
            autoComplete="off"
            placeholder="tpk_…"
            value={key}
            onChange={(event) => setKey(event.target.value)}
          />
        )}
      </Field>
      <Button type="submit" look={secondary ? 'plain' : 'primary'} size="l" disabled={busy}>
        {busy ? say.signingIn : say.signIn}
      </Button>
    </form>
  );
}

function ConfirmPerson({ opened }: { opened: OpenedSession }) {
  const now = lastSession()?.me.user;
  return (
    <Question title={now === undefined ? say.linkOf(opened.me.user) : say.otherPerson}>
      <p className={styles.text}>{now === undefined ? say.onlyIfYou : say.goOnAs(now, opened.me.user)}</p>
      <div className={styles.actions}>
        <Button look="primary" size="l" onClick={() => confirmTicket(opened, true)}>
          {say.goOn(opened.me.user)}
        </Button>
        <Button size="l" onClick={() => confirmTicket(opened, false)}>
          {now === undefined ? say.otherWays : say.stay(now)}
        </Button>
      </div>
    </Question>
  );
}

function FailedTicket({ problem }: { problem: Problem }) {
  const old = problem.status === 401 || problem.status === 410;
  return (
    <Question title={say.ticketFailed}>
      <div className={styles.problem} role="alert">
        {old ? say.ticketUsed : <Foreign text={problem.detail} block />}
      </div>
      <CopyBlock text="toolpost open" label={words.copy} />
      <Button size="l" onClick={forgetTicket}>
        {say.otherWays}
      </Button>
    </Question>
  );
}

function Question({ title, children }: { title: string; children: ReactNode }) {
  return (
    <>
      <h1 className={styles.title}>{title}</h1>
      {children}
    </>
  );
}
