import { useState, type ChangeEvent } from 'react';

import { Button } from '../ui/Button';
import { Input, TextArea } from '../ui/Field';
import { schemaWords } from '../words';
import styles from './Form.module.css';
import { stringify } from './json';
import { textOf, type FieldProps } from './Node';
import { valuesOf } from './resolve';
import type { TextInput } from './shape';

const NATIVE: Partial<Record<TextInput, { type: string; form: RegExp }>> = {
  date: { type: 'date', form: /^(\d{4}-\d\d-\d\d)?$/ },
  time: { type: 'time', form: /^(\d\d:\d\d(:\d\d)?)?$/ },
  email: { type: 'email', form: /^/ },
  url: { type: 'url', form: /^/ },
};
const DATE_TIME = /^(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?)(Z|[+-]\d\d:\d\d)$/;

/** A text: one line, several, or a native input of its format. A value that the native input cannot show is edited as text. */
export function TextField(props: FieldProps & { input: TextInput }) {
  const { input, value, onChange, id, invalid, describedBy, disabled, onBlur, schema, name, bare } = props;
  const text = typeof value === 'string' ? value : value === undefined ? '' : stringify(value);
  const shared = {
    id,
    disabled,
    onBlur,
    value: text,
    'aria-invalid': invalid || undefined,
    'aria-describedby': describedBy,
    'aria-label': bare ? name : undefined,
    placeholder: bare ? name : placeholderOf(schema.default, schema.examples),
    onChange: (event: ChangeEvent<HTMLInputElement | HTMLTextAreaElement>) => onChange(event.target.value),
  };
  if (input === 'area') return <TextArea {...shared} rows={rowsOf(text)} />;
  if (input === 'password') return <SecretInput {...shared} />;
  if (input === 'datetime' && (text === '' || DATE_TIME.test(text))) return <DateTimeInput {...props} text={text} />;
  const native = NATIVE[input];
  const fits = native?.form.test(text);
  return <Input {...shared} type={fits ? native?.type : 'text'} step={fits && input === 'time' ? 1 : undefined} className={input === 'uuid' ? 'mono' : undefined} />;
}

type InputProps = Parameters<typeof Input>[0];

function SecretInput(props: InputProps) {
  const [shown, setShown] = useState(false);
  return (
    <div className={styles.beside}>
      <Input {...props} type={shown ? 'text' : 'password'} autoComplete="off" />
      <Button aria-pressed={shown} onClick={() => setShown(!shown)}>
        {shown ? schemaWords.hide : schemaWords.show}
      </Button>
    </div>
  );
}

/** Wall time and zone apart: nothing is converted, so what was given stays as it is. */
function DateTimeInput({ text, onChange, id, disabled, onBlur, invalid, describedBy, bare, name }: FieldProps & { text: string }) {
  const [, wall = '', zone = localZone()] = DATE_TIME.exec(text) ?? [];
  const change = (next: string) => onChange(next === '' ? '' : `${next.length === 16 ? `${next}:00` : next}${zone}`);
  return (
    <div className={styles.beside}>
      <Input
        id={id}
        type="datetime-local"
        step={1}
        value={wall}
        disabled={disabled}
        onBlur={onBlur}
        aria-invalid={invalid || undefined}
        aria-describedby={describedBy}
        aria-label={bare ? name : undefined}
        onChange={(event) => change(event.target.value)}
      />
      <span className={styles.zone} title={schemaWords.zone}>
        {zone === 'Z' ? 'UTC' : zone}
      </span>
    </div>
  );
}

function localZone(): string {
  const minutes = -new Date().getTimezoneOffset();
  const size = Math.abs(minutes);
  const digits = (count: number) => String(Math.floor(count)).padStart(2, '0');
  return minutes === 0 ? 'Z' : `${minutes < 0 ? '-' : '+'}${digits(size / 60)}:${digits(size % 60)}`;
}

function placeholderOf(preset: unknown, examples: unknown): string | undefined {
  const [first] = valuesOf([preset ?? (Array.isArray(examples) ? examples[0] : undefined)].filter((one) => one !== undefined));
  return first === undefined ? undefined : textOf(first).slice(0, 80);
}

function rowsOf(text: string): number {
  return Math.min(14, Math.max(2, text.split('\n').length));
}
