import { useId, useState, type ReactNode } from 'react';

import { Button, IconButton } from '../ui/Button';
import { classes } from '../ui/classes';
import { Foreign } from '../ui/Foreign';
import { CloseIcon } from '../ui/icons';
import { schemaWords } from '../words';
import { ArrayField, ChoicesField } from './ArrayField';
import { ArtifactField } from './ArtifactField';
import { BooleanField, ConstField, EnumField } from './ChoiceField';
import { useForm } from './context';
import styles from './Form.module.css';
import { initialValue } from './initial';
import { equal, isNumber, isObject, pointerOf, stringify, valueAt, type Json, type Path } from './json';
import { JsonField } from './JsonField';
import { limitsOf } from './limits';
import { NumberField } from './NumberField';
import { ObjectField } from './ObjectField';
import { valuesOf, type JsonSchema } from './resolve';
import { describe, type Described, type Shape } from './shape';
import { TextField } from './TextField';
import { UnionField } from './UnionField';

export interface NodeProps {
  name: string;
  schema: JsonSchema;
  path: Path;
  value: Json | undefined;
  /** Undefined leaves the value out. */
  onChange: (value: Json | undefined) => void;
  required: boolean;
  /** Takes an optional field away again. */
  onRemove?: () => void;
  /** Inside a row of a list: without the line above the input. */
  bare?: boolean;
}

/** What an input of a field needs. */
export interface FieldProps extends NodeProps, Described {
  id: string;
  invalid: boolean;
  describedBy: string | undefined;
  disabled: boolean;
  onBlur: () => void;
}

/** One field of a form: its line, its input, and what is wrong with it. */
export function Node(props: NodeProps) {
  const { schema, path, name } = props;
  const { root, masked, unmask } = useForm();
  const pointer = pointerOf(path);
  const described = describe(schema, root, name);
  if (masked.has(pointer)) {
    const replace = () => {
      unmask(pointer);
      props.onChange(initialValue(schema, root));
    };
    return <Kept {...props} described={described} onReplace={replace} />;
  }
  const { shape } = described;
  if (shape.kind === 'nullable') return <NullableNode {...props} inner={shape.schema} described={described} />;
  return <FieldNode {...props} described={described} />;
}

function FieldNode({ described, extra, ...props }: NodeProps & { described: Described; extra?: ReactNode }) {
  const form = useForm();
  const id = useId();
  const pointer = pointerOf(props.path);
  const issues = form.issues.get(pointer) ?? [];
  const details = <Details {...props} described={described} />;
  const describedBy = `${id}-more`;
  const field: FieldProps = {
    ...props,
    ...described,
    id,
    invalid: issues.length > 0,
    describedBy,
    disabled: form.disabled,
    onBlur: () => form.touch(pointer),
  };
  return (
    <div className={classes(styles.field, isWide(described.shape) && styles.wide)} data-pointer={pointer}>
      {!props.bare && <FieldLine {...props} id={id} described={described} extra={extra} />}
      <FieldInput {...field} />
      <div id={describedBy} className={styles.more}>
        {issues.map((issue) => (
          <p key={issue.message} className={styles.error} role="alert">
            <Foreign text={issue.message} />
          </p>
        ))}
        {!props.bare && details}
      </div>
    </div>
  );
}

function FieldInput(field: FieldProps) {
  const { shape } = field;
  switch (shape.kind) {
    case 'const':
      return <ConstField {...field} constant={shape.value} />;
    case 'enum':
      return <EnumField {...field} values={shape.values} />;
    case 'boolean':
      return <BooleanField {...field} />;
    case 'number':
      return <NumberField {...field} integer={shape.integer} />;
    case 'text':
      return <TextField {...field} input={shape.input} />;
    case 'artifact':
      return <ArtifactField {...field} />;
    case 'object':
      return <ObjectField {...field} shape={shape} />;
    case 'array':
      return <ArrayField {...field} items={shape.items} />;
    case 'choices':
      return <ChoicesField {...field} values={shape.values} />;
    case 'union':
      return <UnionField {...field} branches={shape.branches} />;
    case 'nullable':
    case 'json':
      return <JsonField {...field} />;
  }
}

/** The name, whether it is required, the type, the limits, and how to take the field away. */
function FieldLine({ name, id, described, required, onRemove, extra, value }: NodeProps & { id: string; described: Described; extra?: ReactNode }) {
  const limits = limitsOf(described, value);
  return (
    <div className={styles.line}>
      <label className={styles.name} htmlFor={id}>
        <Foreign text={name} limit={80} />
        {required && (
          <span className={styles.required} title={schemaWords.required}>
            *
          </span>
        )}
      </label>
      <span className={styles.type}>{typeWord(described)}</span>
      <span className={styles.limits}>{limits}</span>
      {extra}
      {onRemove && <IconButton icon={CloseIcon} label={`${schemaWords.remove}: ${name}`} className={styles.small} onClick={onRemove} />}
    </div>
  );
}

/** The description, the default, and what the value was. */
function Details({ value, onChange, path, described }: NodeProps & { described: Described }) {
  const { original, disabled } = useForm();
  const { description } = described.schema;
  const [preset] = 'default' in described.schema ? valuesOf([described.schema.default]) : [];
  const before = original === undefined ? undefined : valueAt(original, path);
  const changed = original !== undefined && !equal(before, value) && isScalar(before) && isScalar(value);
  return (
    <>
      {changed && (
        <p className={styles.was}>
          {schemaWords.was} <s>{before === undefined ? schemaWords.leftOut : <Foreign text={textOf(before)} limit={120} />}</s>
        </p>
      )}
      {typeof description === 'string' && description !== '' && (
        <p className={styles.hint}>
          <Foreign text={description} limit={240} />
        </p>
      )}
      {preset !== undefined && isScalar(preset) && !equal(preset, value) && (
        <p className={styles.hint}>
          {schemaWords.default}{' '}
          <span className="mono">
            <Foreign text={textOf(preset)} limit={60} />
          </span>{' '}
          <button type="button" className="link" disabled={disabled} onClick={() => onChange(preset)}>
            {schemaWords.use}
          </button>
        </p>
      )}
    </>
  );
}

/** A value or null: the field of the value, with a button for none. */
function NullableNode({ inner, described, ...props }: NodeProps & { inner: JsonSchema; described: Described }) {
  const { root, disabled } = useForm();
  const id = useId();
  const merged = { ...annotationsOf(described.schema), ...inner };
  const innerDescribed = describe(merged, root, props.name);
  if (props.value === null) {
    return (
      <div className={styles.field} data-pointer={pointerOf(props.path)}>
        {!props.bare && <FieldLine {...props} id={id} described={innerDescribed} />}
        <div className={styles.kept} id={id}>
          <span className="faint">{schemaWords.none}</span>
          <Button className="end" disabled={disabled} onClick={() => props.onChange(initialValue(withoutDefault(merged), root))}>
            {schemaWords.give}
          </Button>
        </div>
      </div>
    );
  }
  const none = (
    <button type="button" className={styles.none} disabled={disabled} title={schemaWords.setNone} onClick={() => props.onChange(null)}>
      {schemaWords.none}
    </button>
  );
  return <FieldNode {...props} schema={merged} described={innerDescribed} extra={none} />;
}

/** A masked value, which is sent as it was requested unless a person replaces it. */
function Kept({ described, onReplace, ...props }: NodeProps & { described: Described; onReplace: () => void }) {
  const id = useId();
  const [asked] = useState(props.value);
  return (
    <div className={styles.field} data-pointer={pointerOf(props.path)}>
      <FieldLine {...props} onRemove={undefined} id={id} described={described} />
      <div className={styles.kept} id={id}>
        <span aria-hidden className="mono faint">
          ••••••••
        </span>
        <span className="soft">{schemaWords.kept}</span>
        <Button className="end" onClick={onReplace} disabled={asked === undefined}>
          {schemaWords.replace}
        </Button>
      </div>
    </div>
  );
}

function annotationsOf({ title, description, examples }: JsonSchema): JsonSchema {
  return Object.fromEntries(Object.entries({ title, description, examples }).filter(([, value]) => value !== undefined));
}

function withoutDefault({ default: preset, ...schema }: JsonSchema): JsonSchema {
  return preset === null || preset === undefined ? schema : { ...schema, default: preset };
}

function typeWord({ shape, schema }: Described): string {
  switch (shape.kind) {
    case 'text':
      return schemaWords.types[shape.input];
    case 'number':
      return shape.integer ? schemaWords.kinds.integer : schemaWords.kinds.number;
    case 'union':
      return schemaWords.oneOf(shape.branches.length);
    case 'enum':
      return schemaWords.oneOf(shape.values.length);
    case 'nullable':
      return typeof schema.type === 'string' ? schema.type : '';
    default:
      return schemaWords.kinds[shape.kind];
  }
}

function isWide(shape: Shape): boolean {
  switch (shape.kind) {
    case 'text':
      return ['area', 'text', 'url', 'password'].includes(shape.input);
    case 'object':
    case 'array':
    case 'choices':
    case 'union':
    case 'json':
    case 'artifact':
      return true;
    case 'enum':
      return shape.values.map(textOf).join('').length > 24 && shape.values.length <= 4;
    default:
      return false;
  }
}

function isScalar(value: Json | undefined): boolean {
  return value === undefined || (!Array.isArray(value) && !isObject(value));
}

/** A value as a label: texts as they are, others as JSON. */
export function textOf(value: Json): string {
  return typeof value === 'string' ? value : stringify(value);
}

/** A number as it is written; other values have no number. */
export function numberText(value: Json | undefined): string {
  if (typeof value === 'string') return value;
  return isNumber(value) ? stringify(value) : '';
}

