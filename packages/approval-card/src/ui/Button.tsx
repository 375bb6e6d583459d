import type { ButtonHTMLAttributes, Ref } from 'react';

import styles from './Button.module.css';
import { classes } from './classes';
import { Glyph } from './Glyph';
import type { Icon } from '../icons';
import { Kbd } from './Kbd';

export type ButtonLook = 'plain' | 'primary' | 'danger' | 'ghost';
export type ButtonSize = 's' | 'l' | 'xl';

export interface ButtonProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  look?: ButtonLook;
  size?: ButtonSize;
  icon?: Icon;
  /** The key that does the same, shown inside the button. */
  hint?: string;
  ref?: Ref<HTMLButtonElement>;
}

/** Class names for a link that looks like a button. */
export function buttonClasses(look: ButtonLook = 'plain', size: ButtonSize = 's'): string {
  return classes(styles.button, look !== 'plain' && styles[look], size !== 's' && styles[size]);
}

export function Button({ look = 'plain', size = 's', icon, hint, children, className, ...rest }: ButtonProps) {
  return (
    <button type="button" {...rest} className={classes(buttonClasses(look, size), className)}>
      {icon && <Glyph icon={icon} size={size === 's' ? 14 : 16} />}
      {children}
      {hint && <Kbd>{hint}</Kbd>}
    </button>
  );
}
