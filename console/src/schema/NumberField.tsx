import type { KeyboardEvent } from 'react';

import { Input } from '../ui/Field';
import { numberOf } from './json';
import { numberText, type FieldProps } from './Node';

/** A number as text. What is typed stays as it is written: 900.00 and an ID of twenty digits are sent as such. */
export function NumberField({ integer, value, onChange, id, invalid, describedBy, disabled, onBlur, schema, bare, name }: FieldProps & { integer: boolean }) {
  const text = numberText(value);
  const step = typeof schema.multipleOf === 'number' ? schema.multipleOf : 1;
  function onKeyDown(event: KeyboardEvent) {
    if (typeof value !== 'number' || (event.key !== 'ArrowUp' && event.key !== 'ArrowDown') || event.altKey) return;
    event.preventDefault();
    const next = value + (event.key === 'ArrowUp' ? step : -step);
    onChange(Number(next.toPrecision(15)));
  }
  return (
    <Input
      id={id}
      inputMode={integer ? 'numeric' : 'decimal'}
      value={text}
      disabled={disabled}
      onBlur={onBlur}
      onKeyDown={onKeyDown}
      aria-invalid={invalid || undefined}
      aria-describedby={describedBy}
      aria-label={bare ? name : undefined}
      placeholder={bare ? name : placeholderOf(schema.default)}
      // Text that is not a number yet is kept as text, which validation reports.
      onChange={(event) => onChange(numberOf(event.target.value.trim()) ?? event.target.value)}
    />
  );
}

function placeholderOf(preset: unknown): string | undefined {
  return typeof preset === 'number' ? String(preset) : undefined;
}
