import { useState } from 'react';

import { Button } from '../ui/Button';
import { classes } from '../ui/classes';
import { Input } from '../ui/Field';
import { Foreign } from '../ui/Foreign';
import { Glyph } from '../ui/Glyph';
import { AddIcon, NextIcon } from '../ui/icons';
import { schemaWords } from '../words';
import { useForm } from './context';
import styles from './Form.module.css';
import { initialValue } from './initial';
import { equal, isObject, type Json, type JsonObject, type Path } from './json';
import { Node, type FieldProps } from './Node';
import type { JsonSchema, SchemaRoot } from './resolve';
import { describe, type Property, type Shape } from './shape';

type ObjectShape = Extract<Shape, { kind: 'object' }>;

interface BodyProps {
  shape: ObjectShape;
  value: Json | undefined;
  onChange: (value: Json) => void;
  path: Path;
  /** In a branch of a union whose name contains the constant that distinguishes it. */
  withoutConstants?: boolean;
}

/** An object inside of another: a group with a line at its left. */
export function ObjectField({ shape, value, onChange, path, id }: FieldProps & { shape: ObjectShape }) {
  return (
    <div className={styles.group} id={id}>
      <ObjectBody shape={shape} value={value} onChange={onChange} path={path} />
    </div>
  );
}

/** The fields of an object: required ones, optional ones that were added, other names, and the optional ones left out. */
export function ObjectBody({ shape, value, onChange, path, withoutConstants = false }: BodyProps) {
  const { root } = useForm();
  const object = isObject(value) ? value : {};
  const declared = new Set(shape.properties.map((property) => property.name));
  const others = Object.keys(object).filter((name) => !declared.has(name));
  const shown = [...shape.properties.filter((one) => one.required), ...shape.properties.filter((one) => !one.required && Object.hasOwn(object, one.name))];
  const isSaid = (one: Property) => withoutConstants && isConstant(one, Object.hasOwn(object, one.name) ? object[one.name] : undefined, root);
  const left = shape.properties.filter((one) => !one.required && !Object.hasOwn(object, one.name));
  const set = (name: string, next: Json | undefined) => onChange(withProperty(object, name, next));
  const field = (name: string, schema: JsonSchema, required: boolean) => (
    <Node
      key={name}
      name={name}
      schema={schema}
      path={[...path, name]}
      value={Object.hasOwn(object, name) ? object[name] : undefined}
      required={required}
      onChange={(next) => set(name, next)}
      onRemove={required ? undefined : () => set(name, undefined)}
    />
  );
  return (
    <div className={styles.grid}>
      {shown.filter((one) => !isSaid(one)).map((one) => field(one.name, one.schema, one.required))}
      {others.map((name) => field(name, shape.others ?? {}, false))}
      {shape.others && (
        <AddName taken={(name) => Object.hasOwn(object, name) || declared.has(name)} onAdd={(name) => set(name, initialValue(shape.others ?? {}, root))} />
      )}
      {left.length > 0 && <Optional left={left} onAdd={(one) => set(one.name, initialValue(one.schema, root))} />}
    </div>
  );
}

/** A fold with the fields that are left out, each added by a press. */
function Optional({ left, onAdd }: { left: Property[]; onAdd: (property: Property) => void }) {
  const { disabled } = useForm();
  const [open, setOpen] = useState(false);
  return (
    <div className={classes(styles.wide, styles.optional)}>
      <button type="button" className={styles.fold} aria-expanded={open} onClick={() => setOpen(!open)}>
        <Glyph icon={NextIcon} size={14} className={classes(open && styles.turned)} />
        <b>{schemaWords.optional}</b>
        <span className="cut faint grow">
          <Foreign text={left.map((one) => one.name).join(', ')} />
        </span>
        <span className="faint">{schemaWords.leftOutCount(left.length)}</span>
      </button>
      {open && (
        <ul className={styles.leftOut}>
          {left.map((one) => (
            <li key={one.name}>
              <button type="button" className={styles.addOptional} disabled={disabled} onClick={() => onAdd(one)}>
                <Glyph icon={AddIcon} size={12} />
                <span className={styles.addName}>
                  <Foreign text={one.name} limit={80} />
                </span>
                {typeof one.schema.description === 'string' && (
                  <span className="cut faint">
                    <Foreign text={one.schema.description} limit={160} />
                  </span>
                )}
              </button>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

function AddName({ taken, onAdd }: { taken: (name: string) => boolean; onAdd: (name: string) => void }) {
  const { disabled } = useForm();
  const [name, setName] = useState('');
  const double = name !== '' && taken(name);
  function add() {
    if (name === '' || double) return;
    onAdd(name);
    setName('');
  }
  return (
    <div className={classes(styles.wide, styles.addRow)}>
      <Input
        value={name}
        aria-label={schemaWords.addName}
        placeholder={schemaWords.addName}
        aria-invalid={double || undefined}
        disabled={disabled}
        onChange={(event) => setName(event.target.value)}
        onKeyDown={(event) => {
          if (event.key !== 'Enter') return;
          event.preventDefault();
          add();
        }}
      />
      <Button icon={AddIcon} disabled={disabled || name === '' || double} onClick={add}>
        {double ? schemaWords.duplicateName : schemaWords.add}
      </Button>
    </div>
  );
}

/** Whether a property can only have the value that it has. */
function isConstant({ schema }: Property, value: Json | undefined, root: SchemaRoot): boolean {
  const { shape } = describe(schema, root);
  return shape.kind === 'const' && equal(shape.value, value);
}

/** The object with a property set, or without it; the other names keep their order. */
function withProperty(object: JsonObject, name: string, value: Json | undefined): JsonObject {
  const entries = Object.entries(object);
  if (value === undefined) return Object.fromEntries(entries.filter(([known]) => known !== name));
  if (!Object.hasOwn(object, name)) return Object.fromEntries([...entries, [name, value]]);
  return Object.fromEntries(entries.map(([known, one]) => [known, known === name ? value : one]));
}
