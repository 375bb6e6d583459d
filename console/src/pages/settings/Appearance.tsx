import { setPreferences, usePreferences, type Preferences } from '../../shell/preferences';
import { Switch } from '../../ui/Field';
import { Segmented } from '../../ui/Tabs';
import { settingsWords } from '../../words-settings';
import styles from './settings.module.css';

const words = settingsWords.appearance;
const THEMES = ['system', 'light', 'dark'] as const;
const DENSITIES = ['compact', 'comfortable'] as const;

/** How the console looks and reacts in this browser. */
export function Appearance() {
  const { theme, density, letterKeys } = usePreferences();
  return (
    <div className={styles.stack}>
      <p className="soft">{words.stored}</p>
      <section className={styles.choice}>
        <h2>{words.theme}</h2>
        <Segmented<Preferences['theme']>
          label={words.theme}
          value={theme}
          items={THEMES.map((value) => ({ value, label: words.themes[value] }))}
          onChange={(next) => setPreferences({ theme: next })}
        />
      </section>
      <section className={styles.choice}>
        <h2>{words.density}</h2>
        <Segmented<Preferences['density']>
          label={words.density}
          value={density}
          items={DENSITIES.map((value) => ({ value, label: words.densities[value] }))}
          onChange={(next) => setPreferences({ density: next })}
        />
      </section>
      <Switch
        checked={letterKeys}
        onChange={(next) => setPreferences({ letterKeys: next })}
        label={words.letterKeys}
        hint={words.letterKeysHint}
      />
    </div>
  );
}
