import { Link } from '@tanstack/react-router';
import { useState } from 'react';

import { Drawer } from '../ui/Drawer';
import { Glyph } from '../ui/Glyph';
import { FindIcon, MoreIcon, SettingsIcon } from '../ui/icons';
import { words } from '../words';
import { useCounts } from './counts';
import { CountMark, Entry } from './Entry';
import { NAVIGATION } from './navigation';
import styles from './Shell.module.css';

const [FIRST = [], ...REST] = NAVIGATION;

/** The bar of a phone: the first three pages, and the others behind *More*. */
export function BottomBar({ onFind }: { onFind: () => void }) {
  function find() {
    setOpen(false);
    onFind();
  }
  const counts = useCounts();
  const [open, setOpen] = useState(false);
  return (
    <nav className={styles.bottom} aria-label={words.shell.main}>
      {FIRST.map((entry) => (
        <Link key={entry.to} to={entry.to} className={styles.tab} activeOptions={{ exact: entry.to === '/' }}>
          <Glyph icon={entry.icon} size={20} />
          {entry.label}
          {counts[entry.to]?.hot && <CountMark count={counts[entry.to] ?? { count: 0 }} />}
        </Link>
      ))}
      <button type="button" className={styles.tab} onClick={() => setOpen(true)}>
        <Glyph icon={MoreIcon} size={20} />
        {words.more}
      </button>
      <Drawer open={open} onClose={() => setOpen(false)} title={words.more}>
        <div className={styles.more}>
          <button type="button" className={styles.entry} onClick={find}>
            <Glyph icon={FindIcon} />
            <span className={styles.word}>{words.shell.find}</span>
          </button>
          {REST.flat().map((entry) => (
            <Entry key={entry.to} entry={entry} count={counts[entry.to]} onOpen={() => setOpen(false)} />
          ))}
          <Link to="/settings/$section" params={{ section: 'appearance' }} className={styles.entry} onClick={() => setOpen(false)}>
            <Glyph icon={SettingsIcon} />
            <span className={styles.word}>{words.shell.settings}</span>
          </Link>
        </div>
      </Drawer>
    </nav>
  );
}
