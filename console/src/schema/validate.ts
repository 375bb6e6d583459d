/** Validation in the page, before the gateway validates: the errors of the fields themselves, by their paths. */

import { Validator, type OutputUnit } from '@cfworker/json-schema';

import { schemaWords } from '../words';
import { plain, pointerOf, type Json } from './json';
import type { JsonSchema, SchemaRoot } from './resolve';

export interface Issue {
  /** The JSON Pointer of the value. */
  pointer: string;
  message: string;
}

// These only repeat that something inside of them is wrong.
const CONTAINERS = new Set([
  '$ref', '$dynamicRef', 'allOf', 'properties', 'additionalProperties', 'patternProperties', 'items', 'prefixItems',
  'dependentSchemas', 'then', 'else', 'unevaluatedProperties', 'unevaluatedItems',
]);
const UNIONS = new Set(['anyOf', 'oneOf']);
const WRONG_KIND = new Set(['type', 'const', 'enum', 'required']);

/** What is wrong with a value; empty if nothing is. Only leaf errors, and of a union only those of its nearest branch. */
export function validate(value: Json, schema: JsonSchema): Issue[] {
  const leaves = nearest(check(() => validatorOf(schema), value)).filter((error) => !CONTAINERS.has(error.keyword));
  const issues = leaves.map((error) => ({ pointer: pointerIn(error), message: messageOf(error) }));
  const unique = new Map(issues.map((issue) => [`${issue.pointer}\n${issue.message}`, issue]));
  return [...unique.values()];
}

/** All errors of a value. A schema that this validator cannot read has none here: the gateway validates in any case. */
function check(validator: () => Validator, value: Json): OutputUnit[] {
  try {
    return validator().validate(plain(value)).errors;
  } catch {
    return [];
  }
}

const validators = new WeakMap<JsonSchema, Validator>();

function validatorOf(schema: JsonSchema): Validator {
  const known = validators.get(schema);
  if (known) return known;
  // A copy, because the validator adds its own names to what it follows.
  const made = new Validator(structuredClone(schema), '2020-12', false);
  validators.set(schema, made);
  return made;
}

/** The branch of a union that a value belongs to: the first that accepts it, else the one with the fewest errors. */
export function branchOf(value: Json | undefined, branches: readonly JsonSchema[], root: SchemaRoot): number {
  if (value === undefined) return 0;
  const scores = branches.map((branch) => {
    const errors = check(() => new Validator(withRoot(branch, root), '2020-12', false), value);
    return errors.length === 0 ? 0 : 1 + distance(errors, '#', 0);
  });
  return scores.indexOf(Math.min(...scores));
}

/** A node as a schema of its own, so that its references lead somewhere. */
export function withRoot(node: JsonSchema, root: SchemaRoot): JsonSchema {
  if (node === root.schema) return node;
  // Local references are looked up from the root, which therefore is the outermost schema.
  const { $defs, definitions, $schema } = root.schema;
  const shared = { ...($schema !== undefined && { $schema }), ...($defs !== undefined && { $defs }), ...(definitions !== undefined && { definitions }) };
  return structuredClone({ ...shared, ...node });
}

/** The errors without those of branches that the value does not mean. */
function nearest(errors: OutputUnit[]): OutputUnit[] {
  const unions = errors.filter((error) => UNIONS.has(error.keyword));
  const dropped = new Set<string>();
  for (const union of unions) {
    const inside = errors.filter((error) => error.keywordLocation.startsWith(`${union.keywordLocation}/`));
    const branches = new Set(inside.map((error) => branchLocation(error, union)));
    const ranked = [...branches].sort((a, b) => distance(inside, a, depthOf(union)) - distance(inside, b, depthOf(union)));
    for (const branch of ranked.slice(1)) dropped.add(branch);
  }
  const left = errors.filter((error) => ![...dropped].some((branch) => isWithin(error.keywordLocation, branch)));
  return left.filter((error) => !UNIONS.has(error.keyword) || !left.some((one) => one !== error && isWithin(one.keywordLocation, error.keywordLocation)));
}

/** How far a value is from a branch; a wrong type or constant at its top weighs most. */
function distance(errors: readonly OutputUnit[], branch: string, depth: number): number {
  const inside = errors.filter((error) => isWithin(error.keywordLocation, branch) && !CONTAINERS.has(error.keyword));
  const weigh = (error: OutputUnit) => (WRONG_KIND.has(error.keyword) && depthOf(error) <= depth + 1 ? 100 : 1);
  return inside.reduce((sum, error) => sum + weigh(error), 0);
}

const depthOf = ({ instanceLocation }: OutputUnit) => instanceLocation.split('/').length - 1;
const isWithin = (location: string, outer: string) => location === outer || location.startsWith(`${outer}/`);

function branchLocation(error: OutputUnit, union: OutputUnit): string {
  const rest = error.keywordLocation.slice(union.keywordLocation.length + 1);
  return `${union.keywordLocation}/${rest.split('/')[0] ?? ''}`;
}

/** A missing property is an error of the property, not of the object. */
function pointerIn({ keyword, instanceLocation, error }: OutputUnit): string {
  const pointer = decodeURIComponent(instanceLocation.slice(1));
  const missing = keyword === 'required' ? /"(.*)"/.exec(error)?.[1] : undefined;
  return missing === undefined ? pointer : pointer + pointerOf([missing]);
}

function messageOf({ keyword, error }: OutputUnit): string {
  if (keyword === 'required') return schemaWords.missing;
  const type = keyword === 'type' ? /Expected "(.*)"/.exec(error)?.[1] : undefined;
  if (type !== undefined) return schemaWords.expected(type.split('", "'));
  if (keyword === 'false') return schemaWords.noSuchName;
  return error.replace(/^Instance(?= )/, schemaWords.theValue);
}

// ---------------------------------------------------------------- issues of the gateway

const STEP = /\.([A-Za-z_$][\w$-]*)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]/y;

/** An issue as the gateway writes it, `$.items[2].price: message`, with its pointer. */
export function parseIssue(text: string): Issue {
  if (!text.startsWith('$')) return { pointer: '', message: text };
  const path: (string | number)[] = [];
  let at = 1;
  for (;;) {
    STEP.lastIndex = at;
    const found = STEP.exec(text);
    if (!found) break;
    const [step, name, index, quoted] = found;
    path.push(name ?? (index !== undefined ? Number(index) : (JSON.parse(quoted ?? '""') as string)));
    at += step.length;
  }
  return { pointer: pointerOf(path), message: text.slice(at).replace(/^:\s*/, '') };
}
