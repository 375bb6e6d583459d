import pieces from '@toolpost/approval-card/card/card.module.css';
import { decisionWords, endWords } from '@toolpost/approval-card/card/Receipt';
import type { Card } from '../../api/types';
import { useRecentEvents } from '../../live/recent';
import { numberOf, textOf } from '../../live/events';
import { Button } from '../../ui/Button';
import { Chip } from '../../ui/Chip';
import { Foreign } from '../../ui/Foreign';
import { words } from '../../words';
import type { Phase } from '../answers';
import styles from './card.module.css';

interface AnswerStateProps {
  card: Card;
  phase: Phase;
  expired: boolean;
  onNext: () => void;
}

/** The state of an answer: on its way, running, ended, given by someone else, or refused. */
export function AnswerState({ card, phase, expired, onNext }: AnswerStateProps) {
  if (phase.at === 'refused') {
    return (
      <div className={pieces.problem} role="alert">
        <Foreign text={phase.problem.detail} block /> <span className="mono t12">{phase.problem.code}</span>
        {phase.problem.errors.map((error) => (
          <div key={error}>
            <Foreign text={error} />
          </div>
        ))}
      </div>
    );
  }
  return (
    <div className={styles.state} role="status">
      <Words card={card} phase={phase} expired={expired} />
      <span className="end">
        <Button size="l" hint="J" onClick={onNext}>
          {words.cards.next}
        </Button>
      </span>
    </div>
  );
}

function Words({ card, phase, expired }: Omit<AnswerStateProps, 'onNext'>) {
  if (phase.at === 'sending') return words.cards.sending;
  if (phase.at === 'unconfirmed') return words.cards.unconfirmed;
  if (phase.at === 'running') return <Running card={card} denied={phase.decision === 'deny'} />;
  if (phase.at === 'ended') return <Chip tone={phase.decision === 'deny' ? 'idle' : 'ok'}>{endWords(phase.decision)}</Chip>;
  if (expired || card.status === 'expired') return words.cards.expired;
  if (card.answered_by !== null) return <Foreign text={words.cards.answeredBy(card.answered_by, decisionWords(card))} />;
  return words.cards.statuses[card.status];
}

/** The last progress that the running call reported. */
function Running({ card, denied }: { card: Card; denied: boolean }) {
  const events = useRecentEvents();
  const progress = events.find((event) => event.call_id === card.call_id && event.type === 'SUBAGENT_ACTION');
  const fraction = progress && numberOf(progress, 'fraction');
  if (denied) return words.cards.sending;
  return (
    <>
      {words.cards.running} {progress && <Foreign text={textOf(progress, 'text')} className="soft" />}
      {fraction !== undefined && (
        <span className={styles.progress}>
          <i style={{ width: `${Math.min(1, fraction) * 100}%` }} />
        </span>
      )}
    </>
  );
}
