import { useVirtualizer } from '@tanstack/react-virtual';
import { useMemo, useRef } from 'react';

import { words } from '../words';
import { Dialog } from './Dialog';
import { Pieces } from './Foreign';
import styles from './RawText.module.css';

const LONGEST_LINE = 500;
const LINE_HEIGHT = 20;

/** All of a long text, of which only the lines on the screen exist. Lines beyond 500 characters are folded. */
export default function RawText({ text, onClose }: { text: string; onClose: () => void }) {
  const lines = useMemo(() => foldedLines(text), [text]);
  const view = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: lines.length,
    getScrollElement: () => view.current,
    estimateSize: () => LINE_HEIGHT,
    overscan: 20,
  });
  return (
    <Dialog open onClose={onClose} title={words.wholeText} wide>
      <div ref={view} className={styles.view} tabIndex={0} role="region" aria-label={words.wholeText}>
        <div className={styles.sizer} style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((row) => (
            <div key={row.key} className={styles.line} style={{ transform: `translateY(${row.start}px)` }}>
              <Pieces text={lines[row.index] ?? ''} />
            </div>
          ))}
        </div>
      </div>
    </Dialog>
  );
}

function foldedLines(text: string): string[] {
  return text.split('\n').flatMap((line) => {
    if (line.length <= LONGEST_LINE) return [line];
    const folded = [];
    for (let at = 0; at < line.length; at += LONGEST_LINE) folded.push(line.slice(at, at + LONGEST_LINE));
    return folded;
  });
}
