import { useState, type ReactNode } from 'react';

import { Glyph } from '../ui/Glyph';
import { UnfoldIcon } from '../icons';
import { words } from '../words';
import styles from './previews.module.css';

interface FoldedProps {
  /** How many lines there are, and how many are shown at first. */
  lines: number;
  shown: number;
  onOpen?: () => void;
  render: (count: number) => ReactNode;
}

/** The first lines, and a labelled button for the others. */
export function Folded({ lines, shown, onOpen, render }: FoldedProps) {
  const [open, setOpen] = useState(false);
  const hidden = lines - shown;
  if (hidden <= 0) return render(lines);
  function toggle() {
    setOpen(!open);
    onOpen?.();
  }
  return (
    <>
      {render(open ? lines : shown)}
      <button type="button" className={styles.more} onClick={toggle} aria-expanded={open} data-fold={open ? 'open' : 'closed'}>
        <Glyph icon={UnfoldIcon} size={14} />
        {open ? words.cards.fewerLines : words.cards.moreLines(hidden)}
      </button>
    </>
  );
}
