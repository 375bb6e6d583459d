import { Tabs as Base } from '@base-ui/react/tabs';
import type { ReactNode } from 'react';

import { classes } from './classes';
import styles from './Tabs.module.css';

export interface TabItem<Value extends string> {
  value: Value;
  label: ReactNode;
  count?: number;
}

interface TabListProps<Value extends string> {
  items: readonly TabItem<Value>[];
  label: string;
  wide?: boolean;
}

/** The list of tabs inside `Tabs`. */
export function TabList<Value extends string>({ items, label, wide }: TabListProps<Value>) {
  return (
    <Base.List className={classes(styles.list, wide && styles.wide)} aria-label={label}>
      {items.map((item) => (
        <Base.Tab key={item.value} value={item.value} className={(state) => classes(styles.tab, state.active && styles.on)}>
          {item.label}
          {item.count !== undefined && <span className={styles.count}>{item.count}</span>}
        </Base.Tab>
      ))}
    </Base.List>
  );
}

interface TabsProps<Value extends string> {
  value: Value;
  onChange: (value: Value) => void;
  className?: string;
  children: ReactNode;
}

/** Tabs with panels: a `TabList` and a `TabPanel` for each item. */
export function Tabs<Value extends string>({ value, onChange, className, children }: TabsProps<Value>) {
  return (
    <Base.Root value={value} onValueChange={(next) => onChange(next as Value)} className={className}>
      {children}
    </Base.Root>
  );
}

/** With `scrolls`, the panel itself scrolls, so that the keyboard has to reach it. */
export function TabPanel({ value, className, scrolls, children }: { value: string; className?: string; scrolls?: boolean; children: ReactNode }) {
  return (
    <Base.Panel value={value} className={className} tabIndex={scrolls ? 0 : -1}>
      {children}
    </Base.Panel>
  );
}

/** A choice of one out of a few, which filters or changes what is shown below. */
export function Segmented<Value extends string>({
  items,
  label,
  value,
  onChange,
  wide,
}: TabListProps<Value> & { value: Value; onChange: (value: Value) => void }) {
  return (
    <div role="radiogroup" aria-label={label} className={classes(styles.list, wide && styles.wide)}>
      {items.map((item) => (
        <button
          key={item.value}
          type="button"
          role="radio"
          aria-checked={item.value === value}
          className={classes(styles.tab, item.value === value && styles.on)}
          onClick={() => onChange(item.value)}
        >
          {item.label}
          {item.count !== undefined && <span className={styles.count}>{item.count}</span>}
        </button>
      ))}
    </div>
  );
}
