import { createContext, Suspense, useContext, useState, type ReactNode } from 'react';

import { formatBytes } from '../format/number';
import { words } from '../words';
import { classes } from './classes';
import styles from './Foreign.module.css';
import { codePoint, cut, pieces } from './foreign-text';

const LIMIT = { line: 300, block: 4000 };
const STEP = 50_000;

/** Renders the whole of a text that was cut. Without it, each press shows more of the text in place. */
export const WholeText = createContext<((text: string, onClose: () => void) => ReactNode) | undefined>(undefined);

interface ForeignProps {
  text: string;
  /** Keep line breaks; otherwise the text is one line. */
  block?: boolean;
  limit?: number;
  /** Cut without a button that shows the rest, inside of a button or a link. */
  cutOnly?: boolean;
  className?: string;
}

/**
 * Text that a tool, a server or an agent wrote. Shown as text only, with hidden characters by their number, isolated from
 * the direction of what surrounds it, and cut with a way to see the rest.
 */
export function Foreign({ text, block, limit = block ? LIMIT.block : LIMIT.line, cutOnly, className }: ForeignProps) {
  const showWhole = useContext(WholeText);
  const [presses, setPresses] = useState(0);
  const { shown, leftOut } = cut(text, limit + (showWhole ? 0 : presses * STEP));
  return (
    <span className={classes(styles.foreign, block && styles.block, className)} dir="auto">
      <Pieces text={block ? shown : shown.replace(/[\r\n\t]+/g, ' ')} />
      {leftOut > 0 && (
        <>
          {cutOnly ? '…' : '… '}
          {!cutOnly && (
            <button type="button" className={styles.more} onClick={() => setPresses(presses + 1)}>
              {words.bytesMore(formatBytes(leftOut))}
            </button>
          )}
        </>
      )}
      {showWhole && presses > 0 && <Suspense>{showWhole(text, () => setPresses(0))}</Suspense>}
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
