import { useState } from 'react';

import { isObject, stringify, type Json } from '../../schema/json';
import { resolve, schemaOf, valuesOf, type JsonSchema, type SchemaRoot } from '../../schema/resolve';
import { classes } from '../../ui/classes';
import { Foreign } from '../../ui/Foreign';
import { Glyph } from '../../ui/Glyph';
import { NextIcon } from '../../ui/icons';
import { toolWords } from '../../words';
import styles from './SchemaTree.module.css';

const OPEN_DEPTH = 2;
const CONSTRAINTS = [
  'format', 'pattern', 'minLength', 'maxLength', 'minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf',
  'minItems', 'maxItems', 'uniqueItems', 'minProperties', 'maxProperties', 'default', 'const',
];

interface Part {
  name: string;
  schema: JsonSchema;
  required: boolean;
}

/** A schema as a tree of names, types, constraints and descriptions. References are followed when a row is opened. */
export function SchemaTree({ schema }: { schema: JsonSchema }) {
  const root = { schema };
  const node = resolve(schema, root) ?? schema;
  const parts = partsOf(node);
  if (parts.length === 0) return <Row part={{ name: '', schema, required: false }} root={root} depth={0} />;
  return (
    <ul className={styles.tree}>
      {parts.map((part) => (
        <li key={part.name}>
          <Row part={part} root={root} depth={0} />
        </li>
      ))}
    </ul>
  );
}

function Row({ part, root, depth }: { part: Part; root: SchemaRoot; depth: number }) {
  const node = resolve(part.schema, root) ?? part.schema;
  const parts = partsOf(node);
  const [open, setOpen] = useState(depth < OPEN_DEPTH && !('$ref' in part.schema && depth > 0));
  return (
    <>
      <div className={styles.row}>
        <button type="button" className={styles.toggle} disabled={parts.length === 0} aria-expanded={parts.length > 0 ? open : undefined} aria-label={part.name || toolWords.properties} onClick={() => setOpen(!open)}>
          {parts.length > 0 && <Glyph icon={NextIcon} size={12} className={classes(open && styles.open)} />}
        </button>
        <span className={styles.name}>
          <Foreign text={part.name} limit={80} />
          {part.required && <span className="fail-ink"> *</span>}
        </span>
        <span className={styles.more}>
          <span className="mono run-ink">
            <Foreign text={typeOf(node)} limit={80} />
          </span>{' '}
          {constraintsOf(node).map((one) => (
            <span key={one} className={styles.constraint}>
              <Foreign text={one} limit={100} />
            </span>
          ))}
          {typeof node.description === 'string' && (
            <span className={styles.description}>
              <Foreign text={node.description} block limit={600} />
            </span>
          )}
        </span>
      </div>
      {open && parts.length > 0 && (
        <ul className={styles.inner}>
          {parts.map((inner) => (
            <li key={inner.name}>
              <Row part={inner} root={root} depth={depth + 1} />
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

/** What is inside of a node: properties, items, alternatives. */
function partsOf(node: JsonSchema): Part[] {
  const required = new Set(Array.isArray(node.required) ? (node.required as unknown[]) : []);
  const properties = Object.entries(isObject(node.properties) ? node.properties : {}).map(([name, schema]) => ({
    name,
    schema: schemaOf(schema),
    required: required.has(name),
  }));
  const items = isObject(node.items) ? [{ name: '[ ]', schema: schemaOf(node.items), required: false }] : [];
  const others = isObject(node.additionalProperties) ? [{ name: '*', schema: schemaOf(node.additionalProperties), required: false }] : [];
  const alternatives = [node.oneOf, node.anyOf].flatMap((list) => (Array.isArray(list) ? (list as unknown[]) : []));
  const branches = alternatives.map((schema, index) => ({ name: `${toolWords.or} ${index + 1}`, schema: schemaOf(schema), required: false }));
  return [...properties, ...items, ...others, ...branches];
}

function typeOf(node: JsonSchema): string {
  if (Array.isArray(node.type)) return node.type.join(' | ');
  if (typeof node.type === 'string') return node.type;
  if (Array.isArray(node.enum)) return 'enum';
  return node.oneOf || node.anyOf ? toolWords.oneOf : toolWords.anyType;
}

function constraintsOf(node: JsonSchema): string[] {
  const text = (value: Json) => (typeof value === 'string' ? value : stringify(value));
  const named = CONSTRAINTS.filter((keyword) => keyword in node).map((keyword) => `${keyword} ${valuesOf([node[keyword]]).map(text).join('')}`);
  return Array.isArray(node.enum) ? [...named, valuesOf(node.enum).map(text).join(' | ')] : named;
}
