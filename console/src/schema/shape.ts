/** Which field a schema node becomes. What a form does not cover becomes a JSON field for that node alone. */

import { schemaWords } from '../words';
import { isObject, type Json } from './json';
import { resolve, schemaOf, valuesOf, type JsonSchema, type SchemaRoot } from './resolve';

export type TextInput = 'text' | 'area' | 'date' | 'datetime' | 'time' | 'email' | 'url' | 'uuid' | 'password';

export interface Property {
  name: string;
  schema: JsonSchema;
  required: boolean;
}

export interface Branch {
  label: string;
  schema: JsonSchema;
}

export type Shape =
  | { kind: 'const'; value: Json }
  | { kind: 'enum'; values: Json[] }
  | { kind: 'boolean' }
  | { kind: 'number'; integer: boolean }
  | { kind: 'text'; input: TextInput }
  | { kind: 'artifact' }
  | { kind: 'object'; properties: Property[]; others: JsonSchema | undefined }
  | { kind: 'array'; items: JsonSchema }
  | { kind: 'choices'; values: Json[] }
  | { kind: 'nullable'; schema: JsonSchema }
  | { kind: 'union'; branches: Branch[] }
  | { kind: 'json' };

export interface Described {
  shape: Shape;
  /** The node with its references followed. */
  schema: JsonSchema;
}

const JSON_FIELD: Shape = { kind: 'json' };
const NOT_IN_A_FORM = [
  'if', 'then', 'else', 'not', 'dependentSchemas', 'dependentRequired', 'dependencies', 'propertyNames', 'prefixItems',
  'contains', 'unevaluatedProperties', 'unevaluatedItems', '$dynamicRef',
];
const LONG_NAMES = /^(text|body|content|prompt|query|sql|message|description|note|code|script|html|markdown)$/i;
const LONG_TEXT = 120;
const DEEPEST = 10;
const ANNOTATIONS = ['title', 'description', 'default', 'examples'];
const FORMATS: Record<string, TextInput> = {
  date: 'date',
  'date-time': 'datetime',
  time: 'time',
  email: 'email',
  'idn-email': 'email',
  uri: 'url',
  iri: 'url',
  uuid: 'uuid',
  password: 'password',
  multiline: 'area',
};

/** The field for a schema node; `name` decides about long texts only. */
export function describe(node: JsonSchema, root: SchemaRoot, name = ''): Described {
  const schema = resolve(node, root);
  if (!schema) return { shape: JSON_FIELD, schema: node };
  return { shape: shapeOf(schema, root, name, 0), schema };
}

function shapeOf(schema: JsonSchema, root: SchemaRoot, name: string, depth: number): Shape {
  if (depth > DEEPEST || NOT_IN_A_FORM.some((keyword) => keyword in schema)) return JSON_FIELD;
  if ('const' in schema) return { kind: 'const', value: valuesOf([schema.const])[0] ?? null };
  if (Array.isArray(schema.enum)) return enumShape(valuesOf(schema.enum));
  const branches = unionOf(schema);
  if (branches) return unionShape(branches, root, depth);
  if (isArtifact(schema)) return { kind: 'artifact' };
  switch (typeOf(schema)) {
    case 'string':
      return { kind: 'text', input: textInput(schema, name) };
    case 'number':
      return { kind: 'number', integer: false };
    case 'integer':
      return { kind: 'number', integer: true };
    case 'boolean':
      return { kind: 'boolean' };
    case 'object':
      return objectShape(schema);
    case 'array':
      return arrayShape(schema, root);
    case 'null':
      return { kind: 'const', value: null };
    default:
      return JSON_FIELD;
  }
}

function typeOf(schema: JsonSchema): string | undefined {
  if (typeof schema.type === 'string') return schema.type;
  if (isObject(schema.properties)) return 'object';
  return undefined;
}

// ---------------------------------------------------------------- choices

function enumShape(values: Json[]): Shape {
  const [only] = values;
  return values.length === 1 && only !== undefined ? { kind: 'const', value: only } : { kind: 'enum', values };
}

/** The alternatives of a node, each with what the node says beside them. */
function unionOf(schema: JsonSchema): JsonSchema[] | undefined {
  const { oneOf, anyOf, type, ...rest } = schema;
  if (Array.isArray(type)) return (type as unknown[]).map((one) => ({ ...rest, ...pick({ oneOf, anyOf }), type: one }));
  const branches = oneOf ?? anyOf;
  if (!Array.isArray(branches) || (oneOf && anyOf)) return undefined;
  const shared = pick({ ...withoutAnnotations(rest), type });
  return branches.map((branch) => (Object.keys(shared).length > 0 ? { allOf: [shared, branch] } : schemaOf(branch)));
}

function unionShape(branches: JsonSchema[], root: SchemaRoot, depth: number): Shape {
  const resolved = branches.map((branch) => resolve(branch, root));
  const isNull = (schema: JsonSchema | undefined) => schema?.type === 'null' || (schema && 'const' in schema && schema.const === null);
  const others = branches.filter((_, index) => !isNull(resolved[index]));
  const [only] = others;
  if (others.length < branches.length && others.length > 0) {
    return { kind: 'nullable', schema: others.length === 1 && only ? only : { anyOf: others } };
  }
  if (only && others.length === 1) return resolved[0] ? shapeOf(resolved[0], root, '', depth + 1) : JSON_FIELD;
  const constants = resolved.map((schema) => (schema && 'const' in schema ? valuesOf([schema.const])[0] : undefined));
  if (constants.every((value) => value !== undefined)) return { kind: 'enum', values: constants };
  return { kind: 'union', branches: labelled(branches, resolved) };
}

/** Each branch by its title, the constant that distinguishes it, or its shape; equal labels get a number. */
function labelled(branches: JsonSchema[], resolved: (JsonSchema | undefined)[]): Branch[] {
  const labels = resolved.map((schema, index) => labelOf(schema ?? {}, branches[index] ?? {}));
  return branches.map((schema, index) => {
    const label = labels[index] ?? '';
    const twice = labels.filter((one) => one === label).length > 1;
    return { label: twice ? `${label} ${index + 1}` : label, schema };
  });
}

function labelOf(schema: JsonSchema, written: JsonSchema): string {
  const own = schemaOf(Array.isArray(written.allOf) ? (written.allOf as unknown[]).at(-1) : written);
  if (Array.isArray(own.required) && !('properties' in own)) return own.required.join(', ');
  if (typeof schema.title === 'string') return schema.title;
  const constant = Object.values(isObject(schema.properties) ? schema.properties : {})
    .map(schemaOf)
    .find((property) => typeof property.const === 'string' || singleEnum(property) !== undefined);
  if (constant) return typeof constant.const === 'string' ? constant.const : (singleEnum(constant) ?? '');
  if (typeof own.$ref === 'string') return own.$ref.split('/').at(-1) ?? own.$ref;
  if (schema.type === 'array') return schemaWords.listOf(labelOf(schemaOf(schema.items), schemaOf(schema.items)));
  if (typeof schema.type === 'string') return schema.type;
  return schemaWords.other;
}

function singleEnum({ enum: values }: JsonSchema): string | undefined {
  const [only] = Array.isArray(values) && values.length === 1 ? (values as unknown[]) : [];
  return typeof only === 'string' ? only : undefined;
}

// ---------------------------------------------------------------- texts, objects, arrays

function textInput(schema: JsonSchema, name: string): TextInput {
  if (schema.writeOnly === true) return 'password';
  const format = typeof schema.format === 'string' ? FORMATS[schema.format] : undefined;
  if (format) return format;
  const { maxLength, contentMediaType } = schema;
  if (typeof maxLength === 'number' ? maxLength > LONG_TEXT : LONG_NAMES.test(name)) return 'area';
  return typeof contentMediaType === 'string' ? 'area' : 'text';
}

function isArtifact(schema: JsonSchema): boolean {
  return isObject(schema.properties) && Object.hasOwn(schema.properties, 'artifact_id');
}

function objectShape(schema: JsonSchema): Shape {
  const { patternProperties, additionalProperties } = schema;
  const required = new Set(Array.isArray(schema.required) ? (schema.required as unknown[]) : []);
  const declared = Object.entries(isObject(schema.properties) ? schema.properties : {});
  const properties = declared
    .filter(([, property]) => property !== false)
    .map(([name, property]) => ({ name, schema: schemaOf(property), required: required.has(name) }));
  for (const name of required) {
    if (typeof name === 'string' && !declared.some(([known]) => known === name)) properties.push({ name, schema: {}, required: true });
  }
  const patterns = isObject(patternProperties) ? Object.values(patternProperties) : [];
  if (patterns.length > 1) return JSON_FIELD;
  return { kind: 'object', properties, others: othersOf(patterns[0], additionalProperties, properties.length) };
}

/** The schema of names that are not declared; a form offers them only if the schema asks for them. */
function othersOf(pattern: unknown, additional: unknown, declared: number): JsonSchema | undefined {
  if (pattern !== undefined) return schemaOf(pattern);
  if (isObject(additional)) return additional;
  if (additional === false) return undefined;
  return additional === true || declared === 0 ? {} : undefined;
}

function arrayShape(schema: JsonSchema, root: SchemaRoot): Shape {
  if (Array.isArray(schema.items)) return JSON_FIELD;
  const items = schemaOf(schema.items);
  const item = resolve(items, root);
  if (item && Array.isArray(item.enum) && schema.uniqueItems === true) return { kind: 'choices', values: valuesOf(item.enum) };
  return { kind: 'array', items };
}

function withoutAnnotations(schema: JsonSchema): JsonSchema {
  return Object.fromEntries(Object.entries(schema).filter(([keyword]) => !ANNOTATIONS.includes(keyword)));
}

function pick(schema: JsonSchema): JsonSchema {
  return Object.fromEntries(Object.entries(schema).filter(([, value]) => value !== undefined));
}
