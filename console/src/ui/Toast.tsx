import { Toast as Base } from '@base-ui/react/toast';
import type { ReactNode } from 'react';

import { words } from '../words';
import { IconButton } from './Button';
import { CloseIcon } from './icons';
import styles from './Toast.module.css';

const toasts = Base.createToastManager();

/** Say in a corner, for five seconds, what finished out of sight. Never for errors that need a decision. */
export function toast(title: string, more?: ReactNode): void {
  toasts.add({ title, description: more, timeout: 5000 });
}

function ToastList() {
  return Base.useToastManager().toasts.map((one) => (
    <Base.Root key={one.id} toast={one} data-toast className={styles.toast}>
      <Base.Content className={styles.content}>
        <div className="grow">
          <Base.Title className={styles.title} />
          <Base.Description className="soft" render={<div />} />
        </div>
        <Base.Close render={<IconButton icon={CloseIcon} label={words.close} />} />
      </Base.Content>
    </Base.Root>
  ));
}

/** The corner in which toasts appear; once, around everything. */
export function Toasts({ children }: { children: ReactNode }) {
  return (
    <Base.Provider toastManager={toasts} limit={3}>
      {children}
      <Base.Portal>
        <Base.Viewport className={styles.viewport}>
          <ToastList />
        </Base.Viewport>
      </Base.Portal>
    </Base.Provider>
  );
}
