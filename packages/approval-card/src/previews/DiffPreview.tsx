import { useMemo } from 'react';

import { classes } from '../ui/classes';
import { Foreign, Pieces } from '../ui/Foreign';
import { diffCounts } from '../card/gist';
import { diffLines, type DiffLine } from './diff-lines';
import { Folded } from './Folded';
import styles from './previews.module.css';

const SIGN = { same: '', hunk: '', added: '+', removed: '−' };

/** What would change in a file: numbered lines, with the changed words of changed lines marked. */
export default function DiffPreview({ text, shown, onOpen }: { text: string; shown: number; onOpen?: () => void }) {
  const lines = useMemo(() => diffLines(text), [text]);
  const { path, added, removed } = diffCounts(text);
  return (
    <>
      <div className={styles.file}>
        <span className="mono cut">
          <Foreign text={path} />
        </span>
        <span className="num medium">
          <span className="ok-ink">+{added}</span> <span className="fail-ink">−{removed}</span>
        </span>
      </div>
      <Folded
        lines={lines.length}
        shown={shown}
        onOpen={onOpen}
        render={(count) => (
          <div className={styles.diff}>
            {lines.slice(0, count).map((line, index) => (
              <Line key={index} line={line} />
            ))}
          </div>
        )}
      />
    </>
  );
}

function Line({ line: { kind, number, words } }: { line: DiffLine }) {
  if (kind === 'hunk') return <div className={styles.hunk} />;
  return (
    <div className={classes(styles.line, kind !== 'same' && styles[kind])}>
      <span className={styles.number}>{number}</span>
      <span className={styles.sign}>{SIGN[kind]}</span>
      <span className={styles.text}>
        {words.map((word, index) => (
          <span key={index} className={classes(word.changed && styles.changed)}>
            {kind === 'same' ? <Pieces text={word.text} /> : <WithSpaces text={word.text} atEnd={index === words.length - 1} />}
          </span>
        ))}
      </span>
    </div>
  );
}

/** Changed text, in which tabs, returns and spaces at the end can be seen. */
function WithSpaces({ text, atEnd }: { text: string; atEnd: boolean }) {
  const end = (atEnd && /[ \t\r]*$/.exec(text)?.[0]) || '';
  const body = text.slice(0, text.length - end.length);
  const parts = body.split('\t');
  return (
    <>
      {parts.map((part, index) => (
        <span key={index}>
          {index > 0 && <span className={styles.space}>→ </span>}
          <Pieces text={part} />
        </span>
      ))}
      {end && <span className={styles.space}>{end.replaceAll(' ', '·').replaceAll('\t', '→').replaceAll('\r', '␍')}</span>}
    </>
  );
}
