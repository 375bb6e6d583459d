/** Schemas as forms read them: references followed and `allOf` merged, one node at a time. */

import { equal, fromPlain, isObject, stepsOf, type Json } from './json';

/** A JSON Schema as an object; the schemas `true` and `false` are `{}` and `{ not: {} }`. */
export type JsonSchema = Record<string, unknown>;

/** Where references of a schema lead. */
export interface SchemaRoot {
  schema: JsonSchema;
}

const MOST_REFERENCES = 30;
const ANNOTATIONS = new Set(['title', 'description', '$comment', 'examples', 'default', 'deprecated', '$defs', 'definitions']);

export function schemaOf(value: unknown): JsonSchema {
  if (value === false) return { not: {} };
  return isObject(value) ? (value) : {};
}

/** A node with its references followed and its `allOf` merged; undefined if that cannot be done without contradiction. */
export function resolve(node: JsonSchema, root: SchemaRoot): JsonSchema | undefined {
  return resolveWithin(node, root, 0);
}

function resolveWithin(node: JsonSchema, root: SchemaRoot, followed: number): JsonSchema | undefined {
  if (followed > MOST_REFERENCES) return undefined;
  const { $ref, allOf, ...own } = node;
  const parts: JsonSchema[] = [];
  if (typeof $ref === 'string') {
    const target = find($ref, root.schema);
    const found = target && resolveWithin(target, root, followed + 1);
    if (!found) return undefined;
    parts.push(found);
  }
  for (const one of Array.isArray(allOf) ? allOf : []) {
    const found = resolveWithin(schemaOf(one), root, followed + 1);
    if (!found) return undefined;
    parts.push(found);
  }
  return [...parts, own].reduce<JsonSchema | undefined>((merged, part) => merged && merge(merged, part), {});
}

/** The schema that a local reference names. */
export function find(reference: string, root: JsonSchema): JsonSchema | undefined {
  const pointer = reference.startsWith('#') ? decodeURIComponent(reference.slice(1)) : undefined;
  if (pointer === undefined) return undefined;
  if (pointer !== '' && !pointer.startsWith('/')) return findAnchor(root, pointer, 0);
  let found: unknown = root;
  for (const step of stepsOf(pointer)) {
    if (Array.isArray(found)) found = found[Number(step)];
    else if (isObject(found) && Object.hasOwn(found, step)) found = found[step];
    else return undefined;
  }
  return found === true || found === false || isObject(found) ? schemaOf(found) : undefined;
}

function findAnchor(node: unknown, anchor: string, depth: number): JsonSchema | undefined {
  if (depth > MOST_REFERENCES || typeof node !== 'object' || node === null) return undefined;
  if (isObject(node) && node.$anchor === anchor) return node;
  for (const inner of Object.values(node)) {
    const found = findAnchor(inner, anchor, depth + 1);
    if (found) return found;
  }
  return undefined;
}

/** Both schemas as one; undefined if a keyword of both cannot be merged. */
function merge(a: JsonSchema, b: JsonSchema): JsonSchema | undefined {
  const merged: JsonSchema = { ...a };
  for (const [keyword, value] of Object.entries(b)) {
    if (!(keyword in merged) || ANNOTATIONS.has(keyword)) {
      merged[keyword] = value;
      continue;
    }
    const both = mergeKeyword(keyword, merged[keyword], value);
    if (both === undefined) return undefined;
    merged[keyword] = both;
  }
  return merged;
}

function mergeKeyword(keyword: string, a: unknown, b: unknown): unknown {
  if (equal(fromPlain(a), fromPlain(b))) return a;
  switch (keyword) {
    case 'required':
      return Array.isArray(a) && Array.isArray(b) ? [...new Set([...(a as unknown[]), ...(b as unknown[])])] : undefined;
    case 'properties':
      return isObject(a) && isObject(b) ? mergeProperties(a, b) : undefined;
    case 'type':
      return mergeTypes(asList(a), asList(b));
    case 'enum':
      return nonEmpty(asList(a).filter((one) => asList(b).some((other) => equal(fromPlain(one), fromPlain(other)))));
    case 'minimum': case 'exclusiveMinimum': case 'minLength': case 'minItems': case 'minProperties':
      return Math.max(Number(a), Number(b));
    case 'maximum': case 'exclusiveMaximum': case 'maxLength': case 'maxItems': case 'maxProperties':
      return Math.min(Number(a), Number(b));
    default:
      return undefined;
  }
}

function mergeProperties(a: Record<string, unknown>, b: Record<string, unknown>): JsonSchema {
  const merged: JsonSchema = { ...a };
  for (const [name, schema] of Object.entries(b)) {
    merged[name] = Object.hasOwn(merged, name) ? { allOf: [merged[name], schema] } : schema;
  }
  return merged;
}

function mergeTypes(a: unknown[], b: unknown[]): unknown {
  const common = nonEmpty(a.filter((one) => b.includes(one) || (one === 'integer' && b.includes('number'))));
  if (common) return common.length === 1 ? common[0] : common;
  return b.includes('integer') && a.includes('number') ? 'integer' : undefined;
}

const asList = (value: unknown): unknown[] => (Array.isArray(value) ? (value as unknown[]) : [value]);
const nonEmpty = (list: unknown[]): unknown[] | undefined => (list.length > 0 ? list : undefined);

/** The values of a list of a schema as JSON. */
export function valuesOf(list: unknown): Json[] {
  return Array.isArray(list) ? list.map(fromPlain) : [];
}
