import { describe as group, expect, it } from 'vitest';

import { initialValue } from './initial';
import type { JsonSchema } from './resolve';
import { describe } from './shape';

const shape = (schema: JsonSchema, name?: string) => describe(schema, { schema }, name).shape;

group('a text', () => {
  it.each([
    [{ type: 'string' }, 'text'],
    [{ type: 'string', maxLength: 200 }, 'area'],
    [{ type: 'string', maxLength: 20 }, 'text'],
    [{ type: 'string', format: 'multiline' }, 'area'],
    [{ type: 'string', format: 'date' }, 'date'],
    [{ type: 'string', format: 'date-time' }, 'datetime'],
    [{ type: 'string', format: 'time' }, 'time'],
    [{ type: 'string', format: 'email' }, 'email'],
    [{ type: 'string', format: 'uri' }, 'url'],
    [{ type: 'string', format: 'uuid' }, 'uuid'],
    [{ type: 'string', format: 'password' }, 'password'],
    [{ type: 'string', writeOnly: true }, 'password'],
    [{ type: 'string', contentMediaType: 'text/markdown' }, 'area'],
    [{ type: 'string', format: 'unheard-of' }, 'text'],
  ])('of %j is edited as %s', (schema, input) => {
    expect(shape(schema)).toEqual({ kind: 'text', input });
  });

  it.each(['text', 'body', 'content', 'prompt', 'query', 'sql'])('named %s is long', (name) => {
    expect(shape({ type: 'string' }, name)).toEqual({ kind: 'text', input: 'area' });
  });
});

group('a schema', () => {
  it.each([
    [{ type: 'number' }, { kind: 'number', integer: false }],
    [{ type: 'integer' }, { kind: 'number', integer: true }],
    [{ type: 'boolean' }, { kind: 'boolean' }],
    [{ const: 5 }, { kind: 'const', value: 5 }],
    [{ enum: ['only'] }, { kind: 'const', value: 'only' }],
    [{ enum: ['a', 1, null] }, { kind: 'enum', values: ['a', 1, null] }],
    [{ type: 'null' }, { kind: 'const', value: null }],
    [{ type: 'array', items: { type: 'string' } }, { kind: 'array', items: { type: 'string' } }],
    [{ type: 'array', uniqueItems: true, items: { enum: ['a', 'b'] } }, { kind: 'choices', values: ['a', 'b'] }],
    [{ type: ['string', 'null'] }, { kind: 'nullable', schema: { type: 'string' } }],
    [{ anyOf: [{ type: 'integer' }, { type: 'null' }] }, { kind: 'nullable', schema: { type: 'integer' } }],
    [{ oneOf: [{ const: 'a' }, { const: 'b' }] }, { kind: 'enum', values: ['a', 'b'] }],
    [{ type: 'object', properties: { artifact_id: { type: 'string' } } }, { kind: 'artifact' }],
    [{ allOf: [{ type: 'string' }, { maxLength: 5 }] }, { kind: 'text', input: 'text' }],
    [{ allOf: [{ type: 'number' }, { type: 'integer' }] }, { kind: 'number', integer: true }],
    [{ anyOf: [{ type: 'string' }] }, { kind: 'text', input: 'text' }],
  ])('%j becomes %j', (schema, expected) => {
    expect(shape(schema)).toEqual(expected);
  });

  it.each([
    {},
    { if: { type: 'string' }, then: { minLength: 3 } },
    { type: 'object', dependentSchemas: { a: { required: ['b'] } } },
    { not: { type: 'string' } },
    { type: 'object', propertyNames: { pattern: '^x' } },
    { type: 'array', prefixItems: [{ type: 'string' }] },
    { type: 'array', items: [{ type: 'string' }] },
    { allOf: [{ type: 'string' }, { type: 'number' }] },
    { allOf: [{ pattern: 'a' }, { pattern: 'b' }] },
    { $ref: '#/$defs/missing' },
    { $ref: 'https://example.com/elsewhere.json' },
    { $ref: '#' },
    { patternProperties: { a: {}, b: {} }, type: 'object' },
  ])('%j falls back to JSON for that node', (schema) => {
    expect(shape(schema)).toEqual({ kind: 'json' });
  });
});

group('the branches of a union', () => {
  const labels = (schema: JsonSchema) => {
    const found = shape(schema);
    return found.kind === 'union' ? found.branches.map((branch) => branch.label) : found.kind;
  };

  it('are named by title, by the constant that tells them apart, by reference, by type', () => {
    const schema = {
      oneOf: [
        { title: 'A card', type: 'object' },
        { type: 'object', properties: { kind: { const: 'bank' } } },
        { type: 'object', properties: { kind: { enum: ['cash'] } } },
        { $ref: '#/$defs/Voucher' },
        { type: 'integer' },
        { type: 'array', items: { type: 'string' } },
      ],
      $defs: { Voucher: { type: 'object' } },
    };
    expect(labels(schema)).toEqual(['A card', 'bank', 'cash', 'Voucher', 'integer', 'list of string']);
  });

  it('get a number where they have the same name', () => {
    expect(labels({ anyOf: [{ type: 'object' }, { type: 'object' }] })).toEqual(['object 1', 'object 2']);
  });

  it('are named by what each requires', () => {
    const schema = { type: 'object', properties: { a: {}, b: {} }, anyOf: [{ required: ['a'] }, { required: ['b'] }] };
    expect(labels(schema)).toEqual(['a', 'b']);
  });

  it('are the types of a list of types', () => {
    expect(labels({ type: ['string', 'integer'] })).toEqual(['string', 'integer']);
  });
});

group('the first value', () => {
  it('has what is required, and nothing else', () => {
    const schema = {
      type: 'object',
      required: ['a', 'b', 'c', 'd', 'e'],
      properties: {
        a: { type: 'string' },
        b: { type: 'object', required: ['x'], properties: { x: { type: 'integer' }, y: {} } },
        c: { const: 'fixed' },
        d: { type: 'integer', default: 30 },
        e: { type: 'array', items: {} },
        left: { type: 'string', default: 'out' },
      },
    };
    expect(initialValue(schema, { schema })).toEqual({ a: '', b: { x: '' }, c: 'fixed', d: 30, e: [] });
  });

  it('of a schema that requires itself ends', () => {
    const schema = { type: 'object', required: ['next'], properties: { next: { $ref: '#' } } };
    expect(JSON.stringify(initialValue(schema, { schema })).length).toBeLessThan(200);
  });
});
