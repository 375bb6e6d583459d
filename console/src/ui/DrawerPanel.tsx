import { Drawer as Base } from '@base-ui/react/drawer';
import { useRef, type ReactNode } from 'react';

import { words } from '../words';
import { IconButton } from './Button';
import styles from './Dialog.module.css';
import { firstFocus } from './first-focus';
import { CloseIcon } from './icons';
import { usePhone } from './media';

export interface DrawerProps {
  open: boolean;
  onClose: () => void;
  title: string;
  foot?: ReactNode;
  children: ReactNode;
}

/** The panel of `Drawer`, a chunk of its own. */
export default function DrawerPanel({ open, onClose, title, foot, children }: DrawerProps) {
  const phone = usePhone();
  const popup = useRef<HTMLDivElement>(null);
  return (
    <Base.Root open={open} onOpenChange={(next) => !next && onClose()} swipeDirection={phone ? 'down' : 'right'}>
      <Base.Portal>
        <Base.Backdrop className={styles.backdrop} />
        <Base.Viewport className={styles.viewport}>
          <Base.Popup ref={popup} className={styles.drawer} initialFocus={() => firstFocus(popup.current)}>
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
