import { Combobox as Base } from '@base-ui/react/combobox';

import { words } from '../words';
import { classes } from './classes';
import fieldStyles from './Field.module.css';
import styles from './Menu.module.css';

export interface ComboboxOption {
  value: string;
  label: string;
}

interface ComboboxProps {
  options: readonly ComboboxOption[];
  value: string;
  onChange: (value: string) => void;
  label: string;
  id?: string;
  disabled?: boolean;
}

/** One of many values, found by typing. */
export function Combobox({ options, value, onChange, label, id, disabled }: ComboboxProps) {
  const chosen = options.find((option) => option.value === value) ?? null;
  return (
    <Base.Root
      items={options}
      value={chosen}
      onValueChange={(next: ComboboxOption | null) => next && onChange(next.value)}
      disabled={disabled}
      limit={200}
    >
      <Base.Input id={id} aria-label={label} className={classes(fieldStyles.input)} autoComplete="off" spellCheck={false} />
      <Base.Portal>
        <Base.Positioner className={styles.positioner} sideOffset={4} align="start">
          <Base.Popup className={styles.popup}>
            <Base.Empty className={styles.item}>{words.none}</Base.Empty>
            <Base.List>
              {(option: ComboboxOption) => (
                <Base.Item key={option.value} value={option} className={styles.item}>
                  {option.label}
                </Base.Item>
              )}
            </Base.List>
          </Base.Popup>
        </Base.Positioner>
      </Base.Portal>
    </Base.Root>
  );
}
