import { useState } from 'react';

import { Foreign } from '../ui/Foreign';
import { words } from '../words';
import styles from './TextView.module.css';

const FOLDED_LINES = 40;

/** Text as it is, folded above 40 lines. */
export function TextView({ text }: { text: string }) {
  const [whole, setWhole] = useState(false);
  const lines = text.split('\n');
  const folded = !whole && lines.length > FOLDED_LINES;
  return (
    <div className={styles.text}>
      <pre className="code">
        <Foreign text={folded ? lines.slice(0, FOLDED_LINES).join('\n') : text} block limit={20_000} />
      </pre>
      {folded && (
        <button type="button" className={styles.fold} onClick={() => setWhole(true)}>
          {words.wholeText}, {words.counts.lines(lines.length)}
        </button>
      )}
    </div>
  );
}
