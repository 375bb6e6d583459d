/** The value that a form begins with: what must be there, and nothing that was not given. */

import { isObject, type Json, type JsonObject } from './json';
import { valuesOf, type JsonSchema, type SchemaRoot } from './resolve';
import { describe } from './shape';

const DEEPEST = 6;

/** The value of a field that was just added: its default, a constant, or an empty value of its kind. */
export function initialValue(schema: JsonSchema, root: SchemaRoot, depth = 0): Json {
  const { shape, schema: node } = describe(schema, root);
  if (depth > DEEPEST) return null;
  const [preset] = 'default' in node ? valuesOf([node.default]) : [];
  if (preset !== undefined) return preset;
  switch (shape.kind) {
    case 'const':
      return shape.value;
    case 'enum':
      return shape.values[0] ?? null;
    case 'boolean':
      return false;
    case 'object':
      return requiredOf(shape.properties, root, depth);
    case 'array':
    case 'choices':
      return [];
    case 'union':
      return branchValue(shape.branches[0]?.schema ?? {}, root, depth + 1);
    case 'artifact':
      return {};
    case 'nullable':
    case 'json':
      return null;
    // An empty text is not a number, so a number that was not given is reported.
    case 'number':
    case 'text':
      return '';
  }
}

/** The value of a chosen branch of a union, with the constants that tell it apart, even where they are optional. */
export function branchValue(schema: JsonSchema, root: SchemaRoot, depth = 0): Json {
  const value = initialValue(schema, root, depth);
  const { shape } = describe(schema, root);
  if (shape.kind !== 'object' || !isObject(value)) return value;
  const constants = shape.properties.flatMap((one): [string, Json][] => {
    const { shape: property } = describe(one.schema, root);
    return property.kind === 'const' ? [[one.name, property.value]] : [];
  });
  return { ...Object.fromEntries(constants), ...value };
}

function requiredOf(properties: { name: string; schema: JsonSchema; required: boolean }[], root: SchemaRoot, depth: number): JsonObject {
  const entries = properties.filter((one) => one.required).map((one): [string, Json] => [one.name, initialValue(one.schema, root, depth + 1)]);
  return Object.fromEntries(entries);
}

/** The first example of a schema, if it has one. */
export function exampleOf(schema: JsonSchema): Json | undefined {
  return valuesOf(schema.examples)[0] ?? ('example' in schema ? valuesOf([schema.example])[0] : undefined);
}
