import { useState } from 'react';

import { initialValue } from '../../schema/initial';
import { JsonEditor } from '../../schema/JsonEditor';
import type { Json } from '../../schema/json';
import type { JsonSchema } from '../../schema/resolve';
import { SchemaForm } from '../../schema/SchemaForm';
import { Segmented } from '../../ui/Tabs';
import { settingsWords } from '../../words';
import styles from './settings.module.css';

interface ExplainArgumentsProps {
  schema: JsonSchema;
  /** Undefined asks about all calls of the tool. */
  value: Json | undefined;
  onChange: (value: Json | undefined) => void;
  onBroken: (broken: boolean) => void;
}

type Mode = 'any' | 'form' | 'json';

const say = settingsWords;

/** The arguments of the call in question: none, a form from the schema of the tool, or JSON. */
export default function ExplainArguments({ schema, value, onChange, onBroken }: ExplainArgumentsProps) {
  const [mode, setMode] = useState<Mode>(value === undefined ? 'any' : 'form');
  function change(next: Mode) {
    setMode(next);
    onBroken(false);
    if (next === 'any') onChange(undefined);
    else if (value === undefined) onChange(initialValue(schema, { schema }));
  }
  return (
    <div className={styles.line}>
      <span className={styles.label}>{say.explainArguments}</span>
      <Segmented<Mode>
        label={say.explainArguments}
        items={(['any', 'form', 'json'] as const).map((one) => ({ value: one, label: say.explainModes[one] }))}
        value={mode}
        onChange={change}
      />
      {mode === 'form' && value !== undefined && (
        <div className={styles.arguments}>
          <SchemaForm schema={schema} value={value} onChange={onChange} onBroken={onBroken} />
        </div>
      )}
      {mode === 'json' && value !== undefined && (
        <div className={styles.arguments}>
          <JsonEditor label={say.explainArguments} value={value} onChange={onChange} onBroken={onBroken} />
        </div>
      )}
    </div>
  );
}
