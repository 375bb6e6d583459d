import { useEffect, type ReactNode } from 'react';

import { Problem } from '../api/problem';
import { useNow } from '../format/clock';
import { formatClockSeconds } from '../format/time';
import { words } from '../words';
import { Button } from './Button';
import { classes } from './classes';
import { Foreign } from './Foreign';
import styles from './States.module.css';

interface EmptyProps {
  title: string;
  children?: ReactNode;
  actions?: ReactNode;
  /** Inside a list or a box. */
  inline?: boolean;
}

/** Says what would be here, and what fills it. */
export function Empty({ title, children, actions, inline }: EmptyProps) {
  return (
    <div className={classes(styles.state, inline && styles.inline)}>
      <p className={inline ? 'soft' : styles.title}>{title}</p>
      {children && <div className={styles.text}>{children}</div>}
      {actions && <div className={styles.actions}>{actions}</div>}
    </div>
  );
}

/** Lines where rows will be; not shown in the first 150 ms. */
export function Skeleton({ rows = 6, height = 42 }: { rows?: number; height?: number }) {
  return (
    <div className={styles.skeleton} role="status" aria-label={words.loading}>
      {Array.from({ length: rows }, (_, index) => (
        <div key={index} className={styles.row} style={{ height }}>
          <span className={styles.bar} style={{ width: `${18 + ((index * 7) % 16)}%` }} />
          <span className={styles.bar} style={{ width: `${30 + ((index * 11) % 24)}%` }} />
        </div>
      ))}
    </div>
  );
}

interface FailureProps {
  error: unknown;
  onRetry?: () => void;
  /** What was looked for, such as "run run_52c1", for the sentence of a 404. */
  what?: string;
  inline?: boolean;
}

/** What went wrong, as the server says it: not allowed, gone, too many, or any other problem. */
export function Failure({ error, onRetry, what, inline }: FailureProps) {
  const problem = Problem.of(error);
  if (problem.code === 'insufficient_scope') return <Forbidden detail={problem.detail} inline={inline} />;
  if (problem.status === 404) return <Empty title={words.gone(what)} inline={inline} />;
  if (problem.status === 429 && onRetry) return <TooMany problem={problem} onRetry={onRetry} inline={inline} />;
  return (
    <div className={classes(styles.state, styles.error, inline && styles.inline)} role="alert">
      <Foreign text={problem.detail} block />
      <p className={styles.meta}>
        <span className="mono">{problem.code}</span>
        {problem.status >= 500 && ` · ${formatClockSeconds(problem.at)}`}
      </p>
      {onRetry && (
        <div className={styles.actions}>
          <Button onClick={onRetry}>{words.tryAgain}</Button>
        </div>
      )}
    </div>
  );
}

/** The caller lacks a scope: which one, as the server says. */
export function Forbidden({ detail, inline }: { detail: string; inline?: boolean }) {
  return (
    <Empty title={words.notAllowed} inline={inline}>
      <Foreign text={detail} block />
    </Empty>
  );
}

function TooMany({ problem, onRetry, inline }: { problem: Problem; onRetry: () => void; inline?: boolean }) {
  const now = useNow(1);
  const left = Math.ceil(problem.at + (problem.retryAfter ?? 1) - now);
  useEffect(() => {
    if (left <= 0) onRetry();
  }, [left, onRetry]);
  return <Empty title={words.tooMany(Math.max(0, left))} inline={inline} />;
}
