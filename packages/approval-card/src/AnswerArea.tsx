import { useState, type ReactNode } from 'react';

import { ApprovalButtons } from './card/ApprovalButtons';
import { ChoiceAnswer, choicesOf, valueSchema } from './card/ChoiceAnswer';
import { offers, whyOnlyDeny } from './card/decisions';
import { DenyForm } from './card/DenyForm';
import { serviceOf } from './card/kinds';
import { endWords } from './card/Receipt';
import { UnknownAnswers } from './card/UnknownAnswers';
import { usePressGuard } from './card/use-press';
import pieces from './card/card.module.css';
import { useNow } from './format/clock';
import { AccountIcon } from './icons';
import type { Answer, PendingAction } from './types';
import { Button } from './ui/Button';
import { Chip } from './ui/Chip';
import { Field, TextArea } from './ui/Field';
import { Foreign } from './ui/Foreign';
import { words } from './words';

/** What became of the answer of this person. */
export type Phase =
  | { at: 'open' }
  | { at: 'sending' }
  | { at: 'ended'; decision: string; outcome: object | undefined }
  | { at: 'refused'; message: string };

interface AnswerAreaProps {
  action: PendingAction;
  phase: Phase;
  /** The end of the preview was not on the screen yet. */
  quiet: boolean;
  onAnswer: (answer: Answer) => void;
  onConnect: (() => void) | undefined;
  onEdit: (() => void) | undefined;
}

/** The foot of a card: the answers, the form of one, or what became of it. */
export function AnswerArea({ action, phase, onAnswer, ...rest }: AnswerAreaProps) {
  const now = useNow(1);
  const [denying, setDenying] = useState(false);
  if (action.kind === 'restart' || action.status !== 'open') return null;
  if (phase.at === 'sending') return <State>{words.cards.sending}</State>;
  if (phase.at === 'ended') {
    return (
      <State>
        <Chip tone={phase.decision === 'deny' ? 'idle' : 'ok'}>{endWords(phase.decision)}</Chip>
      </State>
    );
  }
  if (action.expires_at <= now) return <State>{words.cards.expired}</State>;
  if (action.viewer?.may.length === 0) {
    return (
      <State>
        {words.cards.youCannot} {action.viewer.why_not && <Foreign text={action.viewer.why_not} />}
      </State>
    );
  }
  const onlyDeny = whyOnlyDeny(action);
  const deny = (reason: string) => onAnswer({ decision: 'deny', ...(reason !== '' && { reason }) });
  return (
    <footer className={pieces.foot}>
      {phase.at === 'refused' && (
        <div className={pieces.problem} role="alert">
          <Foreign text={phase.message} block />
        </div>
      )}
      {onlyDeny !== undefined && (
        <p className="soft">
          {words.cards.youCanDeny} <Foreign text={onlyDeny} />
        </p>
      )}
      {denying ? (
        <DenyForm action={action} onDeny={deny} onClose={() => setDenying(false)} />
      ) : (
        <Answers action={action} onAnswer={onAnswer} onDeny={() => setDenying(true)} {...rest} />
      )}
    </footer>
  );
}

function State({ children }: { children: ReactNode }) {
  return (
    <footer className={pieces.foot} role="status">
      {children}
    </footer>
  );
}

function Answers({
  action,
  quiet,
  onAnswer,
  onConnect,
  onEdit,
  onDeny,
}: Omit<AnswerAreaProps, 'phase'> & { onDeny: () => void }) {
  const guarded = usePressGuard(action.id);
  if (action.kind === 'unknown') return <UnknownAnswers action={action} onAnswer={onAnswer} />;
  if (action.kind === 'approval') {
    return (
      <ApprovalButtons
        action={action}
        can={(decision) => offers(action, decision)}
        quiet={quiet}
        onApprove={() => onAnswer({ decision: 'approve' })}
        onEdit={onEdit}
        onDeny={onDeny}
      />
    );
  }
  const deny = offers(action, 'deny') && (
    <Button look="danger" size="l" hint="D" data-answer="deny" onClick={guarded(onDeny)}>
      {action.kind === 'consent' ? words.cards.refuse : words.cards.deny}
    </Button>
  );
  if (action.kind === 'input') {
    return (
      <InputAnswer action={action} onAnswer={(value) => onAnswer({ decision: 'answer', value })}>
        {deny}
      </InputAnswer>
    );
  }
  return (
    <>
      {onConnect && (
        <Button look="primary" size="l" icon={AccountIcon} onClick={onConnect}>
          <Foreign text={words.cards.connect(serviceOf(action))} />
        </Button>
      )}
      {deny}
    </>
  );
}

interface InputAnswerProps {
  action: PendingAction;
  onAnswer: (value: unknown) => void;
  children: ReactNode;
}

function InputAnswer({ action, onAnswer, children }: InputAnswerProps) {
  const schema = valueSchema(action);
  const choices = choicesOf(schema);
  if (choices) {
    return (
      <ChoiceAnswer action={action} choices={choices} onAnswer={onAnswer}>
        {children}
      </ChoiceAnswer>
    );
  }
  return (
    <ValueForm text={schema.type === 'string'} onAnswer={onAnswer}>
      {children}
    </ValueForm>
  );
}

/** A value as text, or as JSON where the question asks for anything else. The gateway validates it. */
function ValueForm({ text, onAnswer, children }: { text: boolean; onAnswer: (value: unknown) => void; children: ReactNode }) {
  const [value, setValue] = useState('');
  const [broken, setBroken] = useState(false);
  function send() {
    try {
      onAnswer(text ? value : (JSON.parse(value) as unknown));
    } catch {
      setBroken(true);
    }
  }
  return (
    <div className={pieces.form}>
      <Field label={words.cards.answer} error={broken ? words.cards.invalidJson : undefined}>
        {(field) => <TextArea {...field} value={value} onChange={(event) => setValue(event.target.value)} />}
      </Field>
      <div className="row">
        <Button look="primary" size="l" onClick={send}>
          {words.cards.answer}
        </Button>
        {children}
      </div>
    </div>
  );
}
