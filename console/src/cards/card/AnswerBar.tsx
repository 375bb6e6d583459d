import pieces from '@toolpost/approval-card/card/card.module.css';
import { ApprovalButtons } from '@toolpost/approval-card/card/ApprovalButtons';
import { offers } from '@toolpost/approval-card/card/decisions';
import { DenyForm } from '@toolpost/approval-card/card/DenyForm';
import { UnknownAnswers } from '@toolpost/approval-card/card/UnknownAnswers';
import type { Ref } from 'react';

import { useMe } from '../../api/session';
import type { Answer, Card } from '../../api/types';
import { useNow } from '../../format/clock';
import { useKeys } from '../../shell/keys';
import { Button } from '../../ui/Button';
import { Foreign } from '../../ui/Foreign';
import { PassOnIcon } from '../../ui/icons';
import { words } from '../../words';
import { mayAnswer, whyNot } from '../answering';
import { answerCard, isBusy, usePhase } from '../answers';
import { lastReasons, rememberReason } from '../reasons';
import { AnswerState } from './AnswerState';
import { ConsentAnswer } from './ConsentAnswer';
import { InputAnswer } from './InputAnswer';
import { LaterMenu } from './LaterMenu';
import { PassOnForm } from './PassOnForm';

export type AnswerForm = 'deny' | 'pass-on';

interface AnswerBarProps {
  card: Card;
  /** Whether it can still be answered. */
  open: boolean;
  /** The end of the preview was not on the screen yet. */
  quiet: boolean;
  /** The form that is open in place of the answers. */
  form: AnswerForm | undefined;
  onForm: (form: AnswerForm | undefined) => void;
  onEdit: () => void;
  onNext: () => void;
  ref: Ref<HTMLElement>;
}

/** The answers at the foot of a card. One press sends one answer, and shows its outcome. */
export function AnswerBar({ card, open, quiet, form, onForm, onEdit, onNext, ref }: AnswerBarProps) {
  const me = useMe();
  const now = useNow(1);
  const phase = usePhase(card.id);
  const close = () => onForm(undefined);
  const busy = isBusy(phase);
  const over = card.status === 'open' && card.expires_at <= now && !busy;
  const answer = (given: Answer) => void answerCard(card, given);
  useKeys(form === 'deny' ? { Escape: close } : {});
  function deny(reason: string) {
    rememberReason(reason);
    answer({ decision: 'deny', ...(reason !== '' && { reason }) });
  }

  if (!open || busy || over) {
    return (
      <footer ref={ref} className={pieces.foot}>
        <AnswerState card={card} phase={phase} expired={over} onNext={onNext} />
      </footer>
    );
  }
  if (!mayAnswer(card, me)) {
    const not = whyNot(card, me);
    return (
      <footer ref={ref} className={pieces.foot}>
        <p className="soft">
          {words.cards.youCannot} {card.viewer?.why_not ? <Foreign text={card.viewer.why_not} /> : not && words.cards.whyNot[not]}
        </p>
      </footer>
    );
  }
  return (
    <footer ref={ref} className={pieces.foot}>
      {phase.at === 'refused' && <AnswerState card={card} phase={phase} expired={false} onNext={onNext} />}
      {form === 'deny' && <DenyForm action={card} reasons={lastReasons()} onDeny={deny} onClose={close} />}
      {form === 'pass-on' && <PassOnForm card={card} onClose={close} />}
      {form === undefined && (
        <Answers
          card={card}
          quiet={quiet}
          onAnswer={answer}
          onEdit={onEdit}
          onDeny={() => onForm('deny')}
          onPassOn={() => onForm('pass-on')}
        />
      )}
    </footer>
  );
}

interface AnswersProps {
  card: Card;
  quiet: boolean;
  onAnswer: (answer: Answer) => void;
  onEdit: () => void;
  onDeny: () => void;
  onPassOn: () => void;
}

function Answers({ card, quiet, onAnswer, onEdit, onDeny, onPassOn }: AnswersProps) {
  const can = (decision: string) => offers(card, decision);
  if (card.kind === 'consent') return <ConsentAnswer card={card} canDeny={can('deny')} onDeny={onDeny} />;
  if (card.kind === 'unknown') return <UnknownAnswers action={card} onAnswer={onAnswer} />;
  if (card.kind === 'input') return <InputAnswer card={card} onAnswer={onAnswer} onDeny={can('deny') ? onDeny : undefined} />;
  return (
    <ApprovalButtons
      action={card}
      can={can}
      quiet={quiet}
      onApprove={() => onAnswer({ decision: 'approve' })}
      onEdit={onEdit}
      onDeny={onDeny}
      more={<More card={card} onPassOn={onPassOn} />}
    />
  );
}

function More({ card, onPassOn }: { card: Card; onPassOn: () => void }) {
  const { features } = useMe().server;
  return (
    <>
      {features.includes('pending.escalate') && (
        <Button look="ghost" size="l" icon={PassOnIcon} hint="P" data-answer="pass-on" onClick={onPassOn}>
          {words.cards.passOn}
        </Button>
      )}
      <LaterMenu card={card} />
    </>
  );
}
