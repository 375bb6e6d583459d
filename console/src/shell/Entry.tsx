import { Link } from '@tanstack/react-router';

import { formatCount } from '../format/number';
import { classes } from '../ui/classes';
import { Dot } from '../ui/Dot';
import { Glyph } from '../ui/Glyph';
import type { Count } from './counts';
import type { NavigationEntry } from './navigation';
import styles from './Shell.module.css';

/** A page in the sidebar. */
export function Entry({ entry, count, onOpen }: { entry: NavigationEntry; count?: Count; onOpen?: () => void }) {
  return (
    <Link to={entry.to} className={styles.entry} activeOptions={{ exact: entry.to === '/' }} onClick={onOpen} title={entry.label}>
      <Glyph icon={entry.icon} />
      <span className={styles.word}>{entry.label}</span>
      {count && <CountMark count={count} />}
    </Link>
  );
}

export function CountMark({ count: { count, hot, tone } }: { count: Count }) {
  return (
    <span className={classes(styles.count, hot ? styles.hot : styles.quiet)}>
      {tone && <Dot tone={tone} size="small" />}
      {formatCount(count)}
    </span>
  );
}
