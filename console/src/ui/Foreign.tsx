import { lazy, Suspense, useState } from 'react';

import { formatBytes } from '../format/number';
import { words } from '../words';
import { classes } from './classes';
import styles from './Foreign.module.css';
import { codePoint, cut, pieces } from './foreign-text';

const RawText = lazy(() => import('./RawText'));
const LIMIT = { line: 300, block: 4000 };

interface ForeignProps {
  text: string;
  /** Keep line breaks; otherwise the text is one line. */
  block?: boolean;
  limit?: number;
  className?: string;
}

/**
 * Text that a tool, a server or an agent wrote. Shown as text only, with hidden characters by their number, isolated from
 * the direction of what surrounds it, and cut with a way to see the rest.
 */
export function Foreign({ text, block, limit = block ? LIMIT.block : LIMIT.line, className }: ForeignProps) {
  const [whole, setWhole] = useState(false);
  const { shown, leftOut } = cut(text, limit);
  return (
    <span className={classes(styles.foreign, block && styles.block, className)} dir="auto">
      <Pieces text={block ? shown : shown.replace(/[\r\n\t]+/g, ' ')} />
      {leftOut > 0 && (
        <>
          {'… '}
          <button type="button" className={styles.more} onClick={() => setWhole(true)}>
            {words.bytesMore(formatBytes(leftOut))}
          </button>
        </>
      )}
      {whole && (
        <Suspense>
          <RawText text={text} onClose={() => setWhole(false)} />
        </Suspense>
      )}
    </span>
  );
}

/** Text with its hidden characters shown by number, without any limit. */
export function Pieces({ text }: { text: string }) {
  const parts = pieces(text);
  const [first] = parts;
  if (parts.length === 1 && first && !first.hidden) return first.text;
  return parts.map((piece, index) =>
    piece.hidden ? (
      <span key={index} className={styles.hidden} title={words.hiddenCharacter}>
        {codePoint(piece.text)}
      </span>
    ) : (
      piece.text
    ),
  );
}
