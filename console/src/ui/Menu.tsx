import { Menu as Base } from '@base-ui/react/menu';
import type { ReactElement, ReactNode } from 'react';

import { classes } from './classes';
import { Glyph } from './Glyph';
import type { Icon } from './icons';
import styles from './Menu.module.css';

/** A menu below its trigger; `children` are `MenuItem`s. */
export function Menu({ trigger, children }: { trigger: ReactElement; children: ReactNode }) {
  return (
    <Base.Root>
      <Base.Trigger render={trigger} />
      <Base.Portal>
        <Base.Positioner className={styles.positioner} sideOffset={4} align="start">
          <Base.Popup className={styles.popup}>{children}</Base.Popup>
        </Base.Positioner>
      </Base.Portal>
    </Base.Root>
  );
}

interface MenuItemProps {
  icon?: Icon;
  danger?: boolean;
  disabled?: boolean;
  onSelect: () => void;
  children: ReactNode;
}

export function MenuItem({ icon, danger, disabled, onSelect, children }: MenuItemProps) {
  return (
    <Base.Item className={classes(styles.item, danger && styles.danger)} disabled={disabled} onClick={onSelect}>
      {icon && <Glyph icon={icon} size={14} />}
      {children}
    </Base.Item>
  );
}

export function MenuLine() {
  return <Base.Separator className={styles.line} />;
}
