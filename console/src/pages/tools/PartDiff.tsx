import { diffWords } from '@toolpost/approval-card/previews/diff-lines';
import { useMemo } from 'react';

import { Foreign, Pieces } from '../../ui/Foreign';
import styles from './PartDiff.module.css';

interface PartDiffProps {
  part: string;
  before: string;
  after: string;
}

/** A part of a definition before and after, with the changed words marked. */
export function PartDiff({ part, before, after }: PartDiffProps) {
  const changes = useMemo(() => diffWords(before, after), [before, after]);
  return (
    <div className={styles.diff}>
      <div className={styles.part}>
        <Foreign text={part} limit={120} />
      </div>
      <div className={styles.before}>
        <span aria-hidden className={styles.sign}>
          −
        </span>
        <span className={styles.text}>
          {changes.map((change, index) => !change.added && (change.removed ? <mark key={index} className={styles.gone}><Pieces text={change.value} /></mark> : <Pieces key={index} text={change.value} />))}
        </span>
      </div>
      <div className={styles.after}>
        <span aria-hidden className={styles.sign}>
          +
        </span>
        <span className={styles.text}>
          {changes.map((change, index) => !change.removed && (change.added ? <mark key={index} className={styles.come}><Pieces text={change.value} /></mark> : <Pieces key={index} text={change.value} />))}
        </span>
      </div>
    </div>
  );
}
