import { Link } from '@tanstack/react-router';

import type { Card } from '../../api/types';
import { formatDuration } from '../../format/time';
import { Chip } from '../../ui/Chip';
import { Foreign } from '../../ui/Foreign';
import { JsonText } from '../../ui/JsonText';
import { Age } from '../../ui/Time';
import { words } from '../../words';
import { usePhase } from '../answers';
import styles from './card.module.css';

interface OutcomeView {
  status?: string;
  content?: unknown;
  error?: { message?: string; error_code?: string; category?: string } | null;
  duration_ms?: number;
  pending?: { id?: string } | null;
}

/** How a closed card was answered, and what came of the call. */
export function Outcome({ card }: { card: Card }) {
  const phase = usePhase(card.id);
  const outcome = ((phase.at === 'ended' ? phase.outcome : undefined) ?? card.outcome) as OutcomeView | null;
  if (card.status === 'open' && !outcome) return null;
  return (
    <section className={styles.section} aria-live="polite">
      <h3>{words.cards.outcome}</h3>
      <p className="row wrap">
        <AnsweredBy card={card} />
        {outcome && <OutcomeChip outcome={outcome} />}
        <Link to="/runs/$id" params={{ id: card.run_id }} className="link">
          {words.cards.openRun}
        </Link>
      </p>
      {card.answer?.reason && (
        <p className="soft">
          <Foreign text={`“${card.answer.reason}”`} block />
        </p>
      )}
      {outcome && <OutcomeBody outcome={outcome} />}
    </section>
  );
}

function AnsweredBy({ card }: { card: Card }) {
  if (card.status === 'expired') return <Chip>{words.cards.expired}</Chip>;
  if (card.answered_by === null) return card.status === 'open' ? null : <Chip>{words.cards.statuses[card.status]}</Chip>;
  const decision = card.answer?.decision ?? card.status;
  return (
    <span>
      <Foreign text={words.cards.answeredBy(card.answered_by, words.cards.decisions[decision] ?? decision)} />{' '}
      <span className="faint">{card.answered_at !== null && <Age at={card.answered_at} ago />}</span>
    </span>
  );
}

function OutcomeChip({ outcome: { status, duration_ms: took, error } }: { outcome: OutcomeView }) {
  if (status === 'failed') return <Chip tone="fail">{error?.error_code ?? words.cards.failed}</Chip>;
  if (status === 'paused') return <Chip tone="wait">{words.cards.pausedAgain}</Chip>;
  return <Chip tone="ok">{words.cards.completed(formatDuration(took ?? 0))}</Chip>;
}

function OutcomeBody({ outcome: { status, content, error, pending } }: { outcome: OutcomeView }) {
  if (status === 'failed') {
    return (
      <p className={styles.result}>
        <Foreign text={error?.message ?? ''} block />
      </p>
    );
  }
  if (status === 'paused' && pending?.id) {
    return (
      <Link to="/approvals/$id" params={{ id: pending.id }} className="link">
        {words.cards.openNext}
      </Link>
    );
  }
  if (content === undefined || content === null) return null;
  return (
    <div className={styles.result}>
      {typeof content === 'string' ? (
        <pre className="code">
          <Foreign text={content} block />
        </pre>
      ) : (
        <JsonText value={content} />
      )}
    </div>
  );
}
