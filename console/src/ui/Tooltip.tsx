import { Tooltip as Base } from '@base-ui/react/tooltip';
import type { ReactElement } from 'react';

import styles from './Tooltip.module.css';

/** A tooltip on hover and focus. What it says is never the only place where it is said. */
export function Tooltip({ text, side, children }: { text: string; side?: 'top' | 'right' | 'bottom'; children: ReactElement }) {
  return (
    <Base.Root>
      <Base.Trigger render={children} />
      <Base.Portal>
        <Base.Positioner className={styles.positioner} sideOffset={6} side={side ?? 'top'}>
          <Base.Popup className={styles.popup}>{text}</Base.Popup>
        </Base.Positioner>
      </Base.Portal>
    </Base.Root>
  );
}
