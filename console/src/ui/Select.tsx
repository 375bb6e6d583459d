import { Select as Base } from '@base-ui/react/select';
import type { ReactNode } from 'react';

import { chipClasses } from './Chip';
import { classes } from './classes';
import { Glyph } from './Glyph';
import { DoneIcon, OpenBelowIcon } from './icons';
import styles from './Menu.module.css';

export interface Option<Value extends string> {
  value: Value;
  label: ReactNode;
}

interface SelectProps<Value extends string> {
  options: readonly Option<Value>[];
  value: Value;
  onChange: (value: Value) => void;
  label: string;
  /** `chip` is for a row of filters, `full` for a form. */
  look?: 'field' | 'chip' | 'full';
  id?: string;
  disabled?: boolean;
}

export function Select<Value extends string>({ options, value, onChange, label, look = 'field', id, disabled }: SelectProps<Value>) {
  const chosen = options.find((option) => option.value === value);
  return (
    <Base.Root
      items={options.map((option) => ({ value: option.value, label: option.label }))}
      value={value}
      onValueChange={(next) => next !== null && onChange(next)}
      disabled={disabled}
    >
      <Base.Trigger
        id={id}
        aria-label={label}
        className={look === 'chip' ? chipClasses : classes(styles.select, look === 'full' && styles.full)}
      >
        <span className="cut">{chosen?.label ?? value}</span>
        <Glyph icon={OpenBelowIcon} size={12} />
      </Base.Trigger>
      <Base.Portal>
        <Base.Positioner className={styles.positioner} sideOffset={4} alignItemWithTrigger={false} align="start">
          <Base.Popup className={styles.popup}>
            {options.map((option) => (
              <Base.Item key={option.value} value={option.value} className={styles.item}>
                <span className={styles.check}>
                  <Base.ItemIndicator>
                    <Glyph icon={DoneIcon} size={12} />
                  </Base.ItemIndicator>
                </span>
                <Base.ItemText>{option.label}</Base.ItemText>
              </Base.Item>
            ))}
          </Base.Popup>
        </Base.Positioner>
      </Base.Portal>
    </Base.Root>
  );
}
