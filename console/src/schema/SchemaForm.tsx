import { useCallback, useMemo, useState } from 'react';

import { schemaWords } from '../words';
import { FormContext } from './context';
import styles from './Form.module.css';
import type { Json } from './json';
import { ObjectBody } from './ObjectField';
import { Node } from './Node';
import type { JsonSchema } from './resolve';
import { describe } from './shape';
import { validate, type Issue } from './validate';

export interface SchemaFormProps {
  schema: JsonSchema;
  value: Json;
  onChange: (value: Json) => void;
  /** Show every issue, after a person tried to send; before that a field shows its issues once it was left. */
  showAll?: boolean;
  /** Issues that the gateway found; `parseIssue` reads them. */
  issues?: readonly Issue[];
  /** The value before any change: changed fields show what they were. */
  original?: Json;
  /** JSON Pointers of masked values. They are shown as kept, and can be replaced. */
  masked?: readonly string[];
  disabled?: boolean;
  /** Whether some JSON field has text that is not JSON, which is not in `value`. */
  onBroken?: (broken: boolean) => void;
}

const NOTHING: readonly never[] = [];

/** A form made from a JSON Schema. `value` is the whole state; `validate` says whether it can be sent. */
export function SchemaForm(props: SchemaFormProps) {
  const { schema, value, onChange, showAll, issues = NOTHING, original, masked = NOTHING, disabled = false, onBroken } = props;
  const root = useMemo(() => ({ schema }), [schema]);
  const [touched, setTouched] = useState<ReadonlySet<string>>(new Set());
  const [replaced, setReplaced] = useState<ReadonlySet<string>>(new Set());
  const setBroken = useBroken(onBroken);
  const own = useMemo(() => validate(value, schema), [value, schema]);

  const context = useMemo<FormContext>(() => {
    const kept = new Set(masked.filter((pointer) => !replaced.has(pointer)));
    const shown = own.filter((issue) => (showAll === true || touched.has(issue.pointer)) && !kept.has(issue.pointer));
    return {
      root,
      issues: byPointer([...issues, ...shown]),
      masked: kept,
      original,
      disabled,
      touch: (pointer) => setTouched((known) => (known.has(pointer) ? known : new Set([...known, pointer]))),
      setBroken,
      unmask: (pointer) => setReplaced((known) => new Set([...known, pointer])),
    };
  }, [root, own, issues, touched, showAll, original, masked, replaced, disabled, setBroken]);

  const described = describe(schema, root);
  const { shape } = described;
  return (
    <FormContext value={context}>
      <div className={styles.form}>
        {shape.kind === 'object' && shape.properties.length === 0 && shape.others === undefined ? (
          <p className="soft">{schemaWords.noParameters}</p>
        ) : shape.kind === 'object' ? (
          <ObjectBody shape={shape} value={value} onChange={onChange} path={[]} />
        ) : (
          <Node name="" schema={schema} path={[]} value={value} onChange={(next) => onChange(next ?? null)} required />
        )}
      </div>
    </FormContext>
  );
}

/** Counts the fields with text that is not JSON. */
function useBroken(onBroken: ((broken: boolean) => void) | undefined) {
  const [pointers] = useState(() => new Set<string>());
  return useCallback(
    (pointer: string, broken: boolean) => {
      const before = pointers.size > 0;
      if (broken) pointers.add(pointer);
      else pointers.delete(pointer);
      if (pointers.size > 0 !== before) onBroken?.(!before);
    },
    [pointers, onBroken],
  );
}

function byPointer(issues: readonly Issue[]): ReadonlyMap<string, readonly Issue[]> {
  const found = new Map<string, Issue[]>();
  for (const issue of issues) found.set(issue.pointer, [...(found.get(issue.pointer) ?? []), issue]);
  return found;
}
