import { useMemo, useState } from 'react';

import { FilterChip } from '../ui/Chip';
import { classes } from '../ui/classes';
import { Foreign, Pieces } from '../ui/Foreign';
import { useWide } from '../ui/media';
import { diffCounts } from '../card/gist';
import { words } from '../words';
import { diffLines, diffRows, type DiffLine, type DiffRow } from './diff-lines';
import { Folded } from './Folded';
import styles from './previews.module.css';

const SPLIT = 'toolpost.diff.split';
const SIGN = { same: '', hunk: '', added: '+', removed: '−' };

/** What would change in a file: numbered lines, with the changed words marked, below each other or side by side. */
export default function DiffPreview({ text, shown, onOpen }: { text: string; shown: number; onOpen?: () => void }) {
  const lines = useMemo(() => diffLines(text), [text]);
  const isWide = useWide();
  const [split, setSplit] = useState(readSplit);
  const rows = useMemo(() => diffRows(lines), [lines]);
  const { path, added, removed } = diffCounts(text);
  const beside = split && isWide;
  return (
    <>
      <div className={styles.file}>
        <span className="mono cut">
          <Foreign text={path} />
        </span>
        <span className={styles.counts}>
          {isWide && (
            <FilterChip
              on={split}
              onClick={() => {
                setSplit(!split);
                keepSplit(!split);
              }}
            >
              {words.cards.split}
            </FilterChip>
          )}
          <span className="num medium">
            <span className="ok-ink">+{added}</span> <span className="fail-ink">−{removed}</span>
          </span>
        </span>
      </div>
      <Folded
        lines={beside ? rows.length : lines.length}
        shown={shown}
        onOpen={onOpen}
        render={(count) => (
          <div className={styles.diff}>
            {beside
              ? rows.slice(0, count).map((row, index) => <Row key={index} row={row} />)
              : lines.slice(0, count).map((line, index) => <Line key={index} line={line} number={line.number} />)}
          </div>
        )}
      />
    </>
  );
}

function Row({ row: { old, now } }: { row: DiffRow }) {
  if (old?.kind === 'hunk') return <div className={styles.hunk} />;
  return (
    <div className={styles.pair}>
      {old ? <Line line={old} number={old.old} /> : <div className={styles.gap} />}
      {now ? <Line line={now} number={now.number} /> : <div className={styles.gap} />}
    </div>
  );
}

function Line({ line: { kind, words: parts }, number }: { line: DiffLine; number: number | undefined }) {
  if (kind === 'hunk') return <div className={styles.hunk} />;
  return (
    <div className={classes(styles.line, kind !== 'same' && styles[kind])}>
      <span className={styles.number}>{number}</span>
      <span className={styles.sign}>{SIGN[kind]}</span>
      <span className={styles.text}>
        {parts.map((part, index) => (
          <span key={index} className={classes(part.changed && styles.changed)}>
            {kind === 'same' ? <Pieces text={part.text} /> : <WithSpaces text={part.text} atEnd={index === parts.length - 1} />}
          </span>
        ))}
      </span>
    </div>
  );
}

/** Whether a person chose to see diffs side by side, in this browser. */
function readSplit(): boolean {
  try {
    return localStorage.getItem(SPLIT) === 'yes';
  } catch {
    return false; // The page may not store anything.
  }
}

function keepSplit(split: boolean): void {
  try {
    localStorage.setItem(SPLIT, split ? 'yes' : 'no');
  } catch {
    // It is chosen again the next time.
  }
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
