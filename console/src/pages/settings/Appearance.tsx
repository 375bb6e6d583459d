import { useState } from 'react';

import { setPreferences, usePreferences } from '../../shell/preferences';
import { Switch } from '../../ui/Field';
import { Segmented } from '../../ui/Tabs';
import { settingsWords } from '../../words';
import { SectionHead } from './SectionHead';
import styles from './settings.module.css';

const say = settingsWords;
const options = <Value extends string>(labels: Record<Value, string>) =>
  (Object.entries(labels) as [Value, string][]).map(([value, label]) => ({ value, label }));

/** How the console looks and which keys it takes, in this browser. */
export function Appearance() {
  const preferences = usePreferences();
  const [denied, setDenied] = useState(false);

  async function setNotifications(notifications: boolean) {
    const allowed = !notifications || (await Notification.requestPermission()) === 'granted';
    setDenied(!allowed);
    setPreferences({ notifications: notifications && allowed });
  }

  return (
    <div className={styles.form}>
      <SectionHead section="appearance" />
      <div className={styles.line}>
        <span className={styles.label}>{say.theme}</span>
        <Segmented
          label={say.theme}
          items={options(say.themes)}
          value={preferences.theme}
          onChange={(theme) => setPreferences({ theme })}
        />
      </div>
      <div className={styles.line}>
        <span className={styles.label}>{say.density}</span>
        <Segmented
          label={say.density}
          items={options(say.densities)}
          value={preferences.density}
          onChange={(density) => setPreferences({ density })}
        />
      </div>
      <div className={styles.line}>
        <span className={styles.label}>{say.times}</span>
        <Segmented
          label={say.times}
          items={options(say.hours)}
          value={preferences.hours}
          onChange={(hours) => setPreferences({ hours })}
        />
      </div>
      <Switch
        label={say.letterKeys}
        hint={say.letterKeysHint}
        checked={preferences.letterKeys}
        onChange={(letterKeys) => setPreferences({ letterKeys })}
      />
      {'Notification' in window && (
        <Switch
          label={say.notifications}
          hint={denied ? say.notificationsDenied : say.notificationsHint}
          checked={preferences.notifications}
          onChange={(wanted) => void setNotifications(wanted)}
        />
      )}
    </div>
  );
}
