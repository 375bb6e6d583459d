import type { ButtonHTMLAttributes, ReactNode } from 'react';

import styles from './Chip.module.css';
import { classes } from './classes';
import { Glyph } from './Glyph';
import type { Icon } from '../icons';
import type { Tone } from './tone';

interface ChipProps {
  tone?: Tone | 'line';
  icon?: Icon;
  large?: boolean;
  title?: string;
  children: ReactNode;
}

/** A short label; its colour is a state, and its words or icon say the same. */
export function Chip({ tone = 'idle', icon, large, title, children }: ChipProps) {
  return (
    <span className={classes(styles.chip, styles[tone], large && styles.large)} title={title}>
      {icon && <Glyph icon={icon} size={large ? 14 : 12} />}
      {children}
    </span>
  );
}

interface FilterChipProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  icon?: Icon;
  on?: boolean;
}

/** A filter that is on or off. */
export function FilterChip({ icon, on, children, ...rest }: FilterChipProps) {
  return (
    <button type="button" aria-pressed={on} {...rest} className={classes(styles.chip, styles.line, on && styles.on)}>
      {icon && <Glyph icon={icon} size={12} />}
      {children}
    </button>
  );
}

/** Class names for what opens a menu and looks like a chip. */
export const chipClasses = classes(styles.chip, styles.line);
