import { Dialog as Base } from '@base-ui/react/dialog';
import { useRef, type ReactNode, type RefObject } from 'react';

import { words } from '../words';
import { IconButton } from './Button';
import { classes } from './classes';
import styles from './Dialog.module.css';
import { firstFocus } from './first-focus';
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
  const popup = useRef<HTMLDivElement>(null);
  return (
    <Base.Root open={open} onOpenChange={(next) => !next && onClose()}>
      <Base.Portal>
        <Base.Backdrop className={styles.backdrop} />
        <Base.Popup
          ref={popup}
          className={classes(styles.popup, wide && styles.wide)}
          initialFocus={initialFocus ?? (() => firstFocus(popup.current))}
        >
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
