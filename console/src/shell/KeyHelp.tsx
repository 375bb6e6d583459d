import { Dialog } from '../ui/Dialog';
import { Kbd } from '../ui/Kbd';
import { words } from '../words';
import styles from './KeyHelp.module.css';
import { MODIFIER } from './keys';
import { NAVIGATION } from './navigation';
import { usePreferences } from './preferences';

interface Shortcut {
  keys: string[];
  does: string;
}

const GO: Shortcut[] = NAVIGATION.flat().map((entry) => ({ keys: ['G', entry.key.toUpperCase()], does: entry.label }));
const EVERYWHERE: Shortcut[] = [
  { keys: [`${MODIFIER}K`, '/'], does: words.keys.find },
  { keys: ['?'], does: words.keys.help },
  { keys: ['Esc'], does: words.keys.close },
];

/** All shortcuts; `?` opens it. */
export default function KeyHelp({ open, onClose }: { open: boolean; onClose: () => void }) {
  const { letterKeys } = usePreferences();
  return (
    <Dialog open={open} onClose={onClose} title={words.keys.title} wide>
      {!letterKeys && <p className="soft">{words.keys.off}</p>}
      <div className={styles.groups}>
        <Group title={words.keys.groups.everywhere} shortcuts={EVERYWHERE} />
        <Group title={words.keys.groups.go} shortcuts={GO} />
        {Object.entries(words.keys.pages).map(([title, shortcuts]) => (
          <Group key={title} title={title} shortcuts={shortcuts} />
        ))}
      </div>
    </Dialog>
  );
}

function Group({ title, shortcuts }: { title: string; shortcuts: readonly Shortcut[] }) {
  return (
    <section>
      <h3 className={styles.title}>{title}</h3>
      <dl className={styles.list}>
        {shortcuts.map((one) => (
          <div key={one.does} className={styles.line}>
            <dt>{one.does}</dt>
            <dd>
              {one.keys.map((key) => (
                <Kbd key={key}>{key}</Kbd>
              ))}
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
