import { buttonClasses, type ButtonProps } from '@toolpost/approval-card/ui/Button';
import type { ReactNode } from 'react';

import styles from './Button.module.css';
import { classes } from './classes';
import { Glyph } from './Glyph';
import type { Icon } from './icons';
import { Tooltip } from './Tooltip';

export * from '@toolpost/approval-card/ui/Button';

/** A button that is an icon alone; `label` is its name and its tooltip. */
export function IconButton({
  icon,
  label,
  look = 'ghost',
  size = 's',
  className,
  ...rest
}: Omit<ButtonProps, 'children' | 'icon' | 'hint'> & { icon: Icon; label: string }): ReactNode {
  return (
    <Tooltip text={label}>
      <button
        type="button"
        aria-label={label}
        {...rest}
        className={classes(buttonClasses(look, size), styles.square, size === 'l' && styles.l, className)}
      >
        <Glyph icon={icon} size={size === 's' ? 14 : 16} />
      </button>
    </Tooltip>
  );
}
