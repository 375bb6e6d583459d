import { useState, type Ref } from 'react';

import { useMe } from '../../api/session';
import type { Answer, Card } from '../../api/types';
import { useNow } from '../../format/clock';
import { Button } from '../../ui/Button';
import { Foreign } from '../../ui/Foreign';
import { CloseIcon, DoneIcon, PassOnIcon, WritesIcon } from '../../ui/icons';
import { usePhone } from '../../ui/media';
import { words } from '../../words';
import { mayAnswer, whyNot } from '../answering';
import { answerCard, isBusy, usePhase } from '../answers';
import { isDefinitionChange } from '../kinds';
import styles from './card.module.css';
import { AnswerState } from './AnswerState';
import { ConsentAnswer } from './ConsentAnswer';
import { DenyForm } from './DenyForm';
import { InputAnswer } from './InputAnswer';
import { LaterMenu } from './LaterMenu';
import { PassOnForm } from './PassOnForm';
import { UnknownAnswers } from './UnknownAnswers';
import { usePressGuard } from './use-press';

interface AnswerBarProps {
  card: Card;
  /** Whether it can still be answered. */
  open: boolean;
  /** The end of the preview was not on the screen yet. */
  quiet: boolean;
  onEdit: () => void;
  onNext: () => void;
  ref: Ref<HTMLElement>;
}

/** The answers at the foot of a card. One press sends one answer, and says what came of it. */
export function AnswerBar({ card, open, quiet, onEdit, onNext, ref }: AnswerBarProps) {
  const me = useMe();
  const now = useNow(1);
  const phase = usePhase(card.id);
  const [form, setForm] = useState<'deny' | 'pass-on'>();
  const close = () => setForm(undefined);
  const busy = isBusy(phase);
  const over = card.status === 'open' && card.expires_at <= now && !busy;
  const answer = (given: Answer) => void answerCard(card, given);

  if (!open || busy || over) {
    return (
      <footer ref={ref} className={styles.foot}>
        <AnswerState card={card} phase={phase} expired={over} onNext={onNext} />
      </footer>
    );
  }
  if (!mayAnswer(card, me)) {
    const not = whyNot(card, me);
    return (
      <footer ref={ref} className={styles.foot}>
        <p className="soft">
          {words.cards.youCannot} {card.viewer?.why_not ? <Foreign text={card.viewer.why_not} /> : not && words.cards.whyNot[not]}
        </p>
      </footer>
    );
  }
  return (
    <footer ref={ref} className={styles.foot}>
      {phase.at === 'refused' && <AnswerState card={card} phase={phase} expired={false} onNext={onNext} />}
      {form === 'deny' && <DenyForm card={card} onAnswer={answer} onClose={close} />}
      {form === 'pass-on' && <PassOnForm card={card} onClose={close} />}
      {form === undefined && (
        <Answers
          card={card}
          quiet={quiet}
          onAnswer={answer}
          onEdit={onEdit}
          onDeny={() => setForm('deny')}
          onPassOn={() => setForm('pass-on')}
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
  const offered = new Set(card.answers.map((answer) => answer.decision));
  const allowed = card.viewer?.may;
  const can = (decision: string) => offered.has(decision) && (allowed === undefined || allowed.includes(decision));
  if (card.kind === 'consent') return <ConsentAnswer card={card} canDeny={can('deny')} onDeny={onDeny} />;
  if (card.kind === 'unknown') return <UnknownAnswers card={card} onAnswer={onAnswer} onDeny={can('deny') ? onDeny : undefined} />;
  if (card.kind === 'input') return <InputAnswer card={card} onAnswer={onAnswer} onDeny={can('deny') ? onDeny : undefined} />;
  return <ApprovalAnswers {...{ card, quiet, can, onAnswer, onEdit, onDeny, onPassOn }} />;
}

function ApprovalAnswers({
  card,
  quiet,
  can,
  onAnswer,
  onEdit,
  onDeny,
  onPassOn,
}: AnswersProps & { can: (decision: string) => boolean }) {
  const phone = usePhone();
  const { features } = useMe().server;
  const guarded = usePressGuard(card.id);
  const size = phone ? 'xl' : 'l';
  const approve = can('approve') && (
    <Button
      look="primary"
      size={size}
      icon={DoneIcon}
      hint="A"
      data-answer="approve"
      disabled={quiet}
      onClick={guarded(() => onAnswer({ decision: 'approve' }))}
    >
      {isDefinitionChange(card) ? words.cards.acceptAndRun : words.cards.approve}
    </Button>
  );
  const deny = can('deny') && (
    <Button look="danger" size={size} icon={CloseIcon} hint="D" data-answer="deny" onClick={guarded(onDeny)}>
      {words.cards.deny}
    </Button>
  );
  const edit = can('modify') && (
    <Button
      look={phone ? 'ghost' : 'plain'}
      size="l"
      icon={phone ? undefined : WritesIcon}
      hint="E"
      data-answer="modify"
      className={styles.wide}
      onClick={guarded(onEdit)}
    >
      {words.cards.approveChanges}
    </Button>
  );
  if (phone) {
    return (
      <>
        <p className={styles.note}>{quiet ? words.cards.seeAll : words.cards.bindingShort}</p>
        <div className={styles.two}>
          {deny}
          {approve}
        </div>
        {edit}
      </>
    );
  }
  return (
    <>
      {approve}
      {edit}
      {deny}
      <span className="end row">
        {features.includes('pending.escalate') && (
          <Button look="ghost" size="l" icon={PassOnIcon} hint="P" data-answer="pass-on" onClick={onPassOn}>
            {words.cards.passOn}
          </Button>
        )}
        <LaterMenu card={card} />
      </span>
    </>
  );
}
