import type { Ink } from './plot-data';
import styles from './insight.module.css';

/** The colour of a line, for legends. */
export function Swatch({ ink: { token, part } }: { ink: Ink }) {
  const background = part === undefined ? `var(${token})` : `color-mix(in srgb, var(${token}) ${part * 100}%, var(--surface))`;
  return <i className={styles.swatch} style={{ background }} aria-hidden />;
}
