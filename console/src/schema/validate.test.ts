import { describe, expect, it } from 'vitest';

import { ExactNumber, type Json } from './json';
import { isSecretName, withoutSecrets } from './secrets';
import { branchOf, parseIssue, validate } from './validate';

const PAYMENT = {
  type: 'object',
  required: ['amount', 'way'],
  properties: {
    amount: { type: 'number', exclusiveMinimum: 0 },
    way: {
      oneOf: [
        { type: 'object', required: ['kind', 'iban'], properties: { kind: { const: 'bank' }, iban: { type: 'string', minLength: 5 } } },
        { type: 'object', required: ['kind'], properties: { kind: { const: 'cash' } } },
      ],
    },
    'odd name': { type: 'string', maxLength: 2 },
  },
};
const pointers = (value: Json) => validate(value, PAYMENT).map((issue) => issue.pointer);

describe('validation', () => {
  it('finds nothing wrong in a valid value', () => {
    expect(validate({ amount: 900, way: { kind: 'cash' } }, PAYMENT)).toEqual([]);
  });

  it('reports what is missing at the place of the field', () => {
    expect(validate({}, PAYMENT)).toEqual([
      { pointer: '/amount', message: 'Required.' },
      { pointer: '/way', message: 'Required.' },
    ]);
  });

  it('reports a text in the place of a number', () => {
    expect(validate({ amount: '9o', way: { kind: 'cash' } }, PAYMENT)).toEqual([{ pointer: '/amount', message: 'Expected number.' }]);
  });

  it('reports only the branch that the value means', () => {
    expect(pointers({ amount: 1, way: { kind: 'bank', iban: 'x' } })).toEqual(['/way/iban']);
  });

  it('finds names with spaces', () => {
    expect(pointers({ amount: 1, way: { kind: 'cash' }, 'odd name': 'long' })).toEqual(['/odd name']);
  });

  it('takes numbers as they are written', () => {
    expect(validate({ amount: new ExactNumber('900.00'), way: { kind: 'cash' } }, PAYMENT)).toEqual([]);
  });

  it('leaves schemas that it cannot read to the gateway', () => {
    expect(validate('a', { type: 'string', pattern: '(' })).toEqual([]);
    expect(validate('a', { $ref: 'https://example.com/x' })).toEqual([]);
  });
});

describe('the branch of a value', () => {
  const branches = PAYMENT.properties.way.oneOf;
  it.each([
    [{ kind: 'bank', iban: 'DE89370400' }, 0],
    [{ kind: 'cash' }, 1],
    [{ kind: 'bank' }, 0],
    [undefined, 0],
  ])('%j is number %d', (value, index) => {
    expect(branchOf(value, branches, { schema: PAYMENT })).toBe(index);
  });
});

describe('an issue of the gateway', () => {
  it.each([
    ['$.euro: 900 is too much', '/euro', '900 is too much'],
    ['$.lines[2].sku: missing', '/lines/2/sku', 'missing'],
    ['$["odd name"][0]: no', '/odd name/0', 'no'],
    ['$: nothing fits', '', 'nothing fits'],
    ['something else', '', 'something else'],
  ])('%j belongs to %j', (text, pointer, message) => {
    expect(parseIssue(text)).toEqual({ pointer, message });
  });
});

describe('secrets', () => {
  it.each(['password', 'github_token', 'apiKey', 'client_secret', 'password_confirm', 'X-API-Key', 'accessToken', 'session_id'])('are in %s', (name) => {
    expect(isSecretName(name)).toBe(true);
  });

  it.each(['token_count', 'page_token', 'key', 'name', 'secretary', 'max_tokens'])('are not in %s', (name) => {
    expect(isSecretName(name)).toBe(false);
  });

  it('are taken out at any depth, by name and by schema', () => {
    const schema = { properties: { pin: { type: 'string', writeOnly: true }, who: { $ref: '#/$defs/who' } }, $defs: { who: { properties: { p: { format: 'password' } } } } };
    const value = { pin: '1', who: { p: '2', name: 'ann', list: [{ token: '3', n: 4 }] } };
    expect(withoutSecrets(value, schema, { schema })).toEqual({ who: { name: 'ann', list: [{ n: 4 }] } });
  });
});
