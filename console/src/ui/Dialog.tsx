import { Dialog as Base } from '@base-ui/react/dialog';
import type { ReactNode, RefObject } from 'react';

import { words } from '../words';
import { IconButton } from './Button';
import { classes } from './classes';
import styles from './Dialog.module.css';
import { CloseIcon } from './icons';

interface DialogProps {
  open: boolean;
  onClose: () => void;
  title: string;
  wide?: boolean;
  foot?: ReactNode;
  initialFocus?: RefObject<HTMLElement | null>;
  children: ReactNode;
}

/** A dialog with a title; `Esc`, a press outside and its button close it. */
export function Dialog({ open, onClose, title, wide, foot, initialFocus, children }: DialogProps) {
  return (
    <Base.Root open={open} onOpenChange={(next) => !next && onClose()}>
      <Base.Portal>
        <Base.Backdrop className={styles.backdrop} />
        <Base.Popup className={classes(styles.popup, wide && styles.wide)} initialFocus={initialFocus}>
          <div className={styles.head}>
            <Base.Title className={styles.title}>{title}</Base.Title>
            <span className="end">
              <IconButton icon={CloseIcon} label={words.close} onClick={onClose} />
            </span>
          </div>
          <div className={styles.body}>{children}</div>
          {foot && <div className={styles.foot}>{foot}</div>}
        </Base.Popup>
      </Base.Portal>
    </Base.Root>
  );
}
