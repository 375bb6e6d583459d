import { Outlet, useNavigate } from '@tanstack/react-router';
import { Suspense, useState } from 'react';

import { words } from '../words';
import { Banner } from './Banner';
import { BottomBar } from './BottomBar';
import { useKeys, type KeyMap } from './keys';
import { NAVIGATION } from './navigation';
import styles from './Shell.module.css';
import { Sidebar } from './Sidebar';
import { Watch } from './Watch';
import { lazyPart } from '../ui/lazy-part';

const Find = lazyPart(() => import('./find/Find'));
const KeyHelp = lazyPart(() => import('./KeyHelp'));

/** The frame around every page: sidebar, the page as one panel, and on a phone a bar at the bottom. */
export function Shell() {
  const navigate = useNavigate();
  const [help, setHelp] = useState(false);
  const [finding, setFinding] = useState(false);
  const find = () => setFinding(true);
  const go: KeyMap = Object.fromEntries(
    NAVIGATION.flat().map((entry) => [`g ${entry.key}`, () => void navigate({ to: entry.to })]),
  );
  useKeys({ ...go, '?': () => setHelp(true), '/': find, 'mod+k': find });
  return (
    <div className={styles.app}>
      <a href="#page" className={styles.skip}>
        {words.shell.skip}
      </a>
      <Sidebar onFind={find} />
      <main id="page" className={styles.main}>
        <Banner />
        <Outlet />
      </main>
      <BottomBar onFind={find} />
      <Watch />
      <Suspense>
        {finding && <Find open onClose={() => setFinding(false)} />}
        {help && <KeyHelp open onClose={() => setHelp(false)} />}
      </Suspense>
    </div>
  );
}
