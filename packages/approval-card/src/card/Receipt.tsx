import type { ReactNode } from 'react';

import { formatDuration } from '../format/time';
import type { PendingAction } from '../types';
import { Chip } from '../ui/Chip';
import { Foreign } from '../ui/Foreign';
import { JsonText } from '../ui/JsonText';
import { Age } from '../ui/Time';
import { words } from '../words';
import styles from './card.module.css';

interface OutcomeView {
  status?: string;
  content?: unknown;
  error?: { message?: string; error_code?: string; category?: string } | null;
  duration_ms?: number;
  pending?: { id?: string } | null;
}

interface ReceiptProps {
  action: PendingAction;
  /** Of the answer that was just given; otherwise that of the action. */
  outcome?: object | null;
  /** A link to the run. */
  run?: ReactNode;
  /** A link to the action that a call asks next. */
  next?: (id: string) => ReactNode;
}

/** The answer to a closed action, and the outcome of its call. */
export function Receipt({ action, outcome: given, run, next }: ReceiptProps) {
  const outcome = (given ?? action.outcome) as OutcomeView | null | undefined;
  if (action.status === 'open' && !outcome) return null;
  return (
    <section className={styles.section} aria-live="polite">
      <h3>{words.cards.outcome}</h3>
      <p className="row wrap">
        <AnsweredBy action={action} />
        {outcome && <OutcomeChip outcome={outcome} />}
        {run}
      </p>
      {action.answer?.reason && (
        <p className="soft">
          <Foreign text={`“${action.answer.reason}”`} block />
        </p>
      )}
      {outcome && <OutcomeBody outcome={outcome} next={next} />}
    </section>
  );
}

/** A decision in words. */
export function decisionWords(action: PendingAction): string {
  const decision = action.answer?.decision ?? action.status;
  return words.cards.decisions[decision] ?? decision;
}

/** What the person who answered reads. */
export function endWords(decision: string): string {
  if (decision === 'deny') return words.cards.denied;
  return decision === 'approve' || decision === 'modify' ? words.cards.approved : words.cards.answered;
}

function AnsweredBy({ action }: { action: PendingAction }) {
  const { status, answered_by: who, answered_at: at } = action;
  if (status === 'expired') return <Chip>{words.cards.expired}</Chip>;
  if (who == null) return status === 'open' ? null : <Chip>{words.cards.statuses[status]}</Chip>;
  return (
    <span>
      <Foreign text={words.cards.answeredBy(who, decisionWords(action))} />{' '}
      <span className="faint">{at != null && <Age at={at} ago />}</span>
    </span>
  );
}

function OutcomeChip({ outcome: { status, duration_ms: took, error } }: { outcome: OutcomeView }) {
  if (status === 'failed') return <Chip tone="fail">{error?.error_code ?? words.cards.failed}</Chip>;
  if (status === 'paused') return <Chip tone="wait">{words.cards.pausedAgain}</Chip>;
  return <Chip tone="ok">{words.cards.completed(formatDuration(took ?? 0))}</Chip>;
}

function OutcomeBody({ outcome: { status, content, error, pending }, next }: { outcome: OutcomeView; next: ReceiptProps['next'] }) {
  if (status === 'failed') {
    return (
      <p className={styles.result}>
        <Foreign text={error?.message ?? ''} block />
      </p>
    );
  }
  if (status === 'paused' && pending?.id) return next?.(pending.id);
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
