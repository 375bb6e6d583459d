import { classes } from './classes';
import styles from './Dot.module.css';
import type { Tone } from './tone';

/** A state as a dot. Words beside it say the same; `half` is a circuit breaker that is open. */
export function Dot({ tone = 'idle', size }: { tone?: Tone | 'half'; size?: 'small' | 'halo' }) {
  return <i aria-hidden className={classes(styles.dot, tone !== 'idle' && styles[tone], size && styles[size])} />;
}
