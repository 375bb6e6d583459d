import { Link } from '@tanstack/react-router';

import { useMe } from '../api/session';
import { Foreign } from '../ui/Foreign';
import { Glyph } from '../ui/Glyph';
import { FindIcon, SettingsIcon } from '../ui/icons';
import { Kbd } from '../ui/Kbd';
import { Mark } from '../ui/Mark';
import { words } from '../words';
import { useCounts } from './counts';
import { Entry } from './Entry';
import { MODIFIER } from './keys';
import { LiveMark } from './LiveMark';
import { NAVIGATION } from './navigation';
import { PersonMenu } from './PersonMenu';
import styles from './Shell.module.css';

export function Sidebar({ onFind }: { onFind: () => void }) {
  const counts = useCounts();
  const { tenant } = useMe();
  return (
    <aside className={styles.side}>
      <div className={styles.brand}>
        <Mark />
        <span className={styles.word}>{words.product}</span>
        <span className={`${styles.tenant ?? ''} ${styles.word ?? ''} cut`} title={words.shell.tenant}>
          <Foreign text={tenant} />
        </span>
      </div>
      <button type="button" className={styles.find} onClick={onFind} title={words.shell.find}>
        <Glyph icon={FindIcon} size={14} />
        <span className={styles.word}>{words.shell.find}</span>
        <span className={styles.word}>
          <Kbd>{MODIFIER}K</Kbd>
        </span>
      </button>
      <nav aria-label={words.shell.main}>
        {NAVIGATION.map((group) => (
          <div key={group[0]?.to} className={styles.group}>
            {group.map((entry) => (
              <Entry key={entry.to} entry={entry} count={counts[entry.to]} />
            ))}
          </div>
        ))}
      </nav>
      <div className={styles.foot}>
        <LiveMark />
        <Link
          to="/settings/$section"
          params={{ section: 'appearance' }}
          className={styles.gear}
          aria-label={words.shell.settings}
          title={words.shell.settings}
        >
          <Glyph icon={SettingsIcon} />
        </Link>
      </div>
      <PersonMenu />
    </aside>
  );
}
