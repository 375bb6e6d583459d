import { Outlet, useNavigate } from '@tanstack/react-router';
import { useState } from 'react';

import { words } from '../words';
import { Banner } from './Banner';
import { BottomBar } from './BottomBar';
import { KeyHelp } from './KeyHelp';
import { useKeys, type KeyMap } from './keys';
import { NAVIGATION } from './navigation';
import styles from './Shell.module.css';
import { Sidebar } from './Sidebar';
import { Watch } from './Watch';

/** The frame around every page: sidebar, the page as one panel, and on a phone a bar at the bottom. */
export function Shell() {
  const navigate = useNavigate();
  const [help, setHelp] = useState(false);
  const go: KeyMap = Object.fromEntries(
    NAVIGATION.flat().map((entry) => [`g ${entry.key}`, () => void navigate({ to: entry.to })]),
  );
  useKeys({ ...go, '?': () => setHelp(true) });
  return (
    <div className={styles.app}>
      <a href="#page" className={styles.skip}>
        {words.shell.skip}
      </a>
      <Sidebar onFind={() => undefined} />
      <main id="page" className={styles.main}>
        <Banner />
        <Outlet />
      </main>
      <BottomBar />
      <Watch />
      <KeyHelp open={help} onClose={() => setHelp(false)} />
    </div>
  );
}
