import { useRef, useState } from 'react';

import { classes } from '../ui/classes';
import { schemaWords } from '../words';
import styles from './JsonEditor.module.css';
import { equal, stringify, type Json } from './json';
import { tryParse, type JsonSyntaxError } from './parse';

interface JsonEditorProps {
  value: Json | undefined;
  onChange: (value: Json) => void;
  /** The text is not JSON, so `value` is older than the text. */
  onBroken?: (broken: boolean) => void;
  onBlur?: () => void;
  label: string;
  id?: string;
  describedBy?: string;
  disabled?: boolean;
  /** Take all the room there is. */
  tall?: boolean;
}

const INDENT = 2;

/** JSON as text, with line numbers and the place of a mistake. What was typed stays as it is until the value changes elsewhere. */
export function JsonEditor({ value, onChange, onBroken, onBlur, label, id, describedBy, disabled, tall }: JsonEditorProps) {
  const [state, setState] = useState(() => ({ text: textOf(value), value, error: undefined as JsonSyntaxError | undefined }));
  const gutter = useRef<HTMLDivElement>(null);
  if (!equal(state.value, value)) setState({ text: textOf(value), value, error: undefined });
  function change(text: string) {
    const parsed = tryParse(text);
    if ('error' in parsed) {
      setState({ text, value, error: parsed.error });
      onBroken?.(true);
      return;
    }
    setState({ text, value: parsed.value, error: undefined });
    onBroken?.(false);
    onChange(parsed.value);
  }
  const lines = state.text.split('\n').length;
  return (
    <div className={classes(styles.editor, tall && styles.tall)}>
      <div className={styles.body} data-broken={state.error !== undefined || undefined}>
        <div ref={gutter} aria-hidden className={styles.gutter}>
          {Array.from({ length: lines }, (_, index) => (
            <div key={index} className={classes(index + 1 === state.error?.line && styles.wrong)}>
              {index + 1}
            </div>
          ))}
        </div>
        <textarea
          id={id}
          aria-label={label}
          aria-describedby={describedBy}
          aria-invalid={state.error !== undefined || undefined}
          className={styles.text}
          value={state.text}
          rows={Math.min(18, Math.max(3, lines))}
          wrap="off"
          spellCheck={false}
          autoComplete="off"
          disabled={disabled}
          onBlur={onBlur}
          onChange={(event) => change(event.target.value)}
          onScroll={(event) => {
            if (gutter.current) gutter.current.scrollTop = event.currentTarget.scrollTop;
          }}
        />
      </div>
      <div className={styles.foot}>
        <span className={styles.error} role="status">
          {state.error && schemaWords.jsonError(state.error.line, state.error.column, state.error.message)}
        </span>
        <button type="button" className="link" disabled={disabled || state.error !== undefined} onClick={() => setState({ ...state, text: textOf(value) })}>
          {schemaWords.format}
        </button>
      </div>
    </div>
  );
}

function textOf(value: Json | undefined): string {
  return value === undefined ? '' : stringify(value, INDENT);
}
