import { Drawer as Base } from '@base-ui/react/drawer';
import type { ReactNode } from 'react';

import { words } from '../words';
import { IconButton } from './Button';
import styles from './Dialog.module.css';
import { CloseIcon } from './icons';
import { usePhone } from './media';

interface DrawerProps {
  open: boolean;
  onClose: () => void;
  title: string;
  foot?: ReactNode;
  children: ReactNode;
}

/** A panel from the right edge; on a phone a sheet of nearly the whole height, which a swipe down closes. */
export function Drawer({ open, onClose, title, foot, children }: DrawerProps) {
  const phone = usePhone();
  return (
    <Base.Root open={open} onOpenChange={(next) => !next && onClose()} swipeDirection={phone ? 'down' : 'right'}>
      <Base.Portal>
        <Base.Backdrop className={styles.backdrop} />
        <Base.Viewport className={styles.viewport}>
          <Base.Popup className={styles.drawer}>
            <Base.Content className={styles.content}>
              <div className={styles.head}>
                <Base.Title className={styles.title}>{title}</Base.Title>
                <span className="end">
                  <IconButton icon={CloseIcon} label={words.close} onClick={onClose} />
                </span>
              </div>
              <div className={styles.body}>{children}</div>
              {foot && <div className={styles.foot}>{foot}</div>}
            </Base.Content>
          </Base.Popup>
        </Base.Viewport>
      </Base.Portal>
    </Base.Root>
  );
}
