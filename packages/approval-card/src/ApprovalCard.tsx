import { useRef, useState, type KeyboardEvent, type ReactNode } from 'react';

import { AnswerArea, type Phase } from './AnswerArea';
import styles from './ApprovalCard.module.css';
import { armApproval } from './card/ApprovalButtons';
import { ArgumentTable, Binding } from './card/Arguments';
import { CardHead } from './card/CardHead';
import { Expiry, KindChip } from './card/CardTop';
import { DefinitionChanges } from './card/DefinitionChanges';
import { isDefinitionChange } from './card/kinds';
import { Receipt } from './card/Receipt';
import { useSeenEnd } from './card/use-seen-end';
import pieces from './card/card.module.css';
import { Preview, previewTitle } from './previews/Preview';
import type { Answer, PendingAction } from './types';
import { classes } from './ui/classes';
import { Foreign } from './ui/Foreign';
import { usePhone } from './ui/media';
import { words } from './words';

export interface ApprovalCardProps {
  /** The pending action, as the REST API returns it. */
  action: PendingAction;
  /**
   * Sends an answer; called once for each answer. What it resolves to is shown as the outcome of the call. If it rejects,
   * the message of the error is shown and the action can be answered again.
   */
  onAnswer: (answer: Answer) => Promise<object | null | undefined> | undefined;
  /** Starts the sign-in that a consent asks for. */
  onConnect?: () => void;
  /** Opens a form for changed arguments; without it, an approval with changes is not offered. */
  onEdit?: () => void;
  /** The input schema of the tool, for the descriptions of the arguments. */
  inputSchema?: Record<string, unknown>;
  /** A link to the run, in the line about who asks. */
  run?: ReactNode;
  className?: string;
}

/** A pending action as a card: what the call would do, who asks and why, the answers, and the receipt of the answer. */
export function ApprovalCard(props: ApprovalCardProps) {
  return <OneCard key={props.action.id} {...props} />;
}

function OneCard({ action, onAnswer, onConnect, onEdit, inputSchema, run, className }: ApprovalCardProps) {
  const [phase, setPhase] = useState<Phase>({ at: 'open' });
  const sent = useRef(false);
  const card = useRef<HTMLElement>(null);
  const phone = usePhone();
  const { mark, seen, see } = useSeenEnd();

  // The mark is set before the state: a second press comes before React renders.
  async function answer(given: Answer) {
    if (sent.current) return;
    sent.current = true;
    setPhase({ at: 'sending' });
    try {
      const outcome = await onAnswer(given);
      setPhase({ at: 'ended', decision: given.decision, outcome: outcome ?? undefined });
    } catch (error) {
      sent.current = false;
      setPhase({ at: 'refused', message: error instanceof Error ? error.message : String(error) });
    }
  }

  return (
    <article
      ref={card}
      className={classes('toolpost-card', styles.card, className)}
      aria-label={action.tool_name}
      onKeyDown={(event) => pressKey(event, card.current)}
    >
      <header className={styles.top}>
        <KindChip action={action} />
        <span className="end row soft t12">
          <Expiry action={action} short={phone} />
        </span>
      </header>
      <div className={styles.body}>
        <div>
          <CardHead action={action} run={run} />
        </div>
        {action.kind === 'approval' && action.prompt !== '' && <Why prompt={action.prompt} />}
        <What action={action} schema={inputSchema} onOpenFold={see} />
        <div ref={mark} />
        {action.kind === 'approval' && action.status === 'open' && <Binding />}
        <Receipt action={action} outcome={phase.at === 'ended' ? phase.outcome : undefined} />
      </div>
      <AnswerArea
        action={action}
        phase={phase}
        quiet={phone && !seen}
        onAnswer={(given) => void answer(given)}
        onConnect={onConnect}
        onEdit={onEdit}
      />
    </article>
  );
}

function Why({ prompt }: { prompt: string }) {
  return (
    <section>
      <h3>{words.cards.why}</h3>
      <p className="soft">
        <Foreign text={prompt} block />
      </p>
    </section>
  );
}

interface WhatProps {
  action: PendingAction;
  schema: Record<string, unknown> | undefined;
  onOpenFold: () => void;
}

/** The preview with the arguments folded below it; without a preview, the arguments. */
function What({ action, schema, onOpenFold }: WhatProps) {
  if (isDefinitionChange(action)) return <DefinitionChanges action={action} />;
  if (!action.preview) {
    if (action.kind !== 'approval' && Object.keys(action.arguments).length === 0) return null;
    return (
      <section className={pieces.panel}>
        {action.kind === 'approval' && <p className={classes(pieces.pad, 'soft')}>{words.cards.noPreview}</p>}
        <ArgumentTable action={action} schema={schema} />
      </section>
    );
  }
  return (
    <>
      <section className={pieces.panel}>
        <div className={pieces.head}>
          <h3>{previewTitle(action)}</h3>
        </div>
        <Preview action={action} onOpen={onOpenFold} />
      </section>
      <details className={styles.more}>
        <summary>{words.cards.tabs.arguments}</summary>
        <ArgumentTable action={action} schema={schema} />
      </details>
    </>
  );
}

/** The keys of a card that has the focus: `A` moves it to Approve, `E` and `D` open their forms. */
function pressKey(event: KeyboardEvent, card: HTMLElement | null): void {
  const target = event.target as HTMLElement;
  const typing = ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName);
  if (typing || event.metaKey || event.ctrlKey || event.altKey || event.defaultPrevented) return;
  const key = event.key.toLowerCase();
  if (key === 'a') armApproval(card);
  else if (key === 'd') card?.querySelector<HTMLButtonElement>('[data-answer="deny"]')?.click();
  else if (key === 'e') card?.querySelector<HTMLButtonElement>('[data-answer="modify"]')?.click();
  else return;
  event.preventDefault();
}
