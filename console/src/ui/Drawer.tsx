import { Suspense, useState } from 'react';

import type { DrawerProps } from './DrawerPanel';
import { lazyPart } from './lazy-part';

const DrawerPanel = lazyPart(() => import('./DrawerPanel'));

/**
 * A panel from the right edge; on a phone a sheet of nearly the whole height, which a swipe down closes. Its code is loaded
 * when it opens for the first time.
 */
export function Drawer(props: DrawerProps) {
  const [opened, setOpened] = useState(props.open);
  if (props.open && !opened) setOpened(true);
  if (!opened) return null;
  return (
    <Suspense>
      <DrawerPanel {...props} />
    </Suspense>
  );
}
