import { useState } from 'react';
import { describe, expect, it } from 'vitest';

import { button, press, show, type } from '../testing';
import { initialValue } from './initial';
import { stringify, type Json } from './json';
import type { JsonSchema } from './resolve';
import { SchemaForm, type SchemaFormProps } from './SchemaForm';

let latest: Json = null;

function Form({ schema, first, ...rest }: { schema: JsonSchema; first: Json } & Partial<SchemaFormProps>) {
  const [value, setValue] = useState(first);
  function change(next: Json) {
    latest = next;
    setValue(next);
  }
  return <SchemaForm {...rest} schema={schema} value={value} onChange={change} />;
}

function open(properties: Record<string, JsonSchema>, first: Json, more: JsonSchema = {}, rest: Partial<SchemaFormProps> = {}): HTMLElement {
  const schema = { type: 'object', properties, ...more };
  return show(<Form schema={schema} first={first} {...rest} />);
}

const input = (place: HTMLElement, pointer: string) =>
  place.querySelector<HTMLInputElement>(`[data-pointer="${pointer}"] input, [data-pointer="${pointer}"] textarea`);

describe('a choice that a constant tells apart', () => {
  const branch = (kind: string, name: string): JsonSchema => ({
    type: 'object', properties: { kind: { const: kind, default: kind }, [name]: { type: 'string' } }, required: [name],
  });
  const payment = { oneOf: [branch('card', 'number'), branch('transfer', 'iban')] };

  it('has the constant although it is optional', () => {
    const root = { schema: { type: 'object', properties: { payment }, required: ['payment'] } };
    expect(initialValue(root.schema, root)).toEqual({ payment: { kind: 'card', number: '' } });
  });

  it('changes the constant with the branch', () => {
    const place = open({ payment }, { payment: { kind: 'card', number: '' } }, { required: ['payment'] });
    press(button(place, 'transfer'));
    expect(latest).toEqual({ payment: { kind: 'transfer', iban: '' } });
    expect(place.textContent).not.toContain('left out');
  });
});

describe('the form', () => {
  it('sends numbers as they are typed', () => {
    const place = open({ amount: { type: 'number' } }, { amount: '' });
    type(input(place, '/amount'), '12345678901234567890.00');
    expect(stringify(latest)).toBe('{"amount":12345678901234567890.00}');
  });

  it('keeps a text that is not a number yet, and says so when asked', () => {
    const place = open({ amount: { type: 'number' } }, { amount: '' }, {}, { showAll: true });
    type(input(place, '/amount'), '1e');
    expect(latest).toEqual({ amount: '1e' });
    expect(place.textContent).toContain('Expected number.');
  });

  it('does not send what is left out, and takes added fields away again', () => {
    const place = open({ a: { type: 'string' }, b: { type: 'integer' } }, { a: 'x' }, { required: ['a'] });
    expect(place.querySelector('[data-pointer="/b"]')).toBeNull();
    press(place.querySelector('[aria-expanded]'));
    press([...place.querySelectorAll('li button')].at(0));
    expect(latest).toEqual({ a: 'x', b: '' });
    press(button(place, 'Remove: b'));
    expect(stringify(latest)).toBe('{"a":"x"}');
  });

  it('has three values for an optional boolean without default', () => {
    const place = open({ dry: { type: 'boolean' } }, { dry: false });
    press(button(place, 'true'));
    expect(latest).toEqual({ dry: true });
    press(button(place, 'left out'));
    expect(latest).toEqual({});
  });

  it('chooses among few values side by side', () => {
    const place = open({ state: { enum: ['open', 'closed', 3] } }, { state: 'open' });
    press(button(place, '3'));
    expect(latest).toEqual({ state: 3 });
  });

  it('shows a constant and does not edit it', () => {
    const place = open({ kind: { const: 'bank' } }, { kind: 'bank' }, { required: ['kind'] });
    expect(place.querySelector('output')?.textContent).toBe('bank');
  });

  it('adds, moves and removes rows of a list', () => {
    const place = open({ to: { type: 'array', items: { type: 'string' } } }, { to: ['a', 'b'] });
    press(button(place, 'Move up: Item 2'));
    expect(latest).toEqual({ to: ['b', 'a'] });
    press(button(place, 'Add an item'));
    expect(latest).toEqual({ to: ['b', 'a', ''] });
    press(button(place, 'Remove: Item 1'));
    expect(latest).toEqual({ to: ['a', ''] });
  });

  it('stops adding rows at the limit', () => {
    const place = open({ to: { type: 'array', maxItems: 1, items: { type: 'string' } } }, { to: ['a'] });
    expect(button(place, 'Add an item')).toHaveProperty('disabled', true);
    expect(place.textContent).toContain('1 of at most 1');
  });

  it('has checkboxes for several of some values', () => {
    const place = open({ days: { type: 'array', uniqueItems: true, items: { enum: ['mo', 'tu'] } } }, { days: ['mo'] });
    press(place.querySelectorAll('input[type="checkbox"]')[1]);
    expect(latest).toEqual({ days: ['mo', 'tu'] });
  });

  it('chooses the branch of a union and keeps what was typed in another', () => {
    const way = {
      oneOf: [
        { type: 'object', required: ['kind', 'iban'], properties: { kind: { const: 'bank' }, iban: { type: 'string' } } },
        { type: 'object', required: ['kind'], properties: { kind: { const: 'cash' } } },
      ],
    };
    const place = open({ way }, { way: { kind: 'bank', iban: 'DE1' } });
    press(button(place, 'cash'));
    expect(latest).toEqual({ way: { kind: 'cash' } });
    press(button(place, 'bank'));
    expect(latest).toEqual({ way: { kind: 'bank', iban: 'DE1' } });
  });

  it('has a value or none', () => {
    const place = open({ due: { type: ['string', 'null'] } }, { due: 'x' });
    press(button(place, 'None'));
    expect(latest).toEqual({ due: null });
    press(button(place, 'Give a value'));
    expect(latest).toEqual({ due: '' });
  });

  it('has rows of names and values for other names', () => {
    const place = open({}, { env: 'x' }, { additionalProperties: { type: 'string' } });
    type(place.querySelector('input[placeholder="Name"]'), 'path');
    press(button(place, 'Add'));
    type(input(place, '/path'), '/tmp');
    expect(latest).toEqual({ env: 'x', path: '/tmp' });
  });

  it('keeps and shows names that the schema does not know', () => {
    const place = open({ a: { type: 'string' } }, { a: '1', stray: { b: 2 } }, { additionalProperties: false });
    type(input(place, '/a'), '2');
    expect(latest).toEqual({ a: '2', stray: { b: 2 } });
    expect(place.querySelector('[data-pointer="/stray"] textarea')).not.toBeNull();
  });

  it('opens recursive schemas as deep as they are filled', () => {
    const schema = { $defs: { node: { type: 'object', properties: { name: { type: 'string' }, next: { $ref: '#/$defs/node' } } } }, $ref: '#/$defs/node' };
    const place = show(<Form schema={schema} first={{ name: 'a', next: { name: 'b' } }} />);
    type(input(place, '/next/name'), 'c');
    expect(latest).toEqual({ name: 'a', next: { name: 'c' } });
  });

  it('edits a node that it has no field for as JSON, and reports text that is not', () => {
    const broken: boolean[] = [];
    const place = open({ any: {} }, { any: 1 }, {}, { onBroken: (one) => broken.push(one) });
    type(input(place, '/any'), '{"a": 1e400');
    expect(place.textContent).toContain('Line 1, column 12');
    type(input(place, '/any'), '{"a": 1e400}');
    expect(stringify(latest)).toBe('{"any":{"a":1e400}}');
    expect(broken).toEqual([true, false]);
  });

  it('offers the default and shows it as such', () => {
    const place = open({ n: { type: 'integer', default: 30 } }, { n: '' });
    press(button(place, 'Use'));
    expect(latest).toEqual({ n: 30 });
  });

  it('keeps a date with its zone', () => {
    const place = open({ at: { type: 'string', format: 'date-time' } }, { at: '2026-11-20T10:00:00+02:00' });
    expect(place.textContent).toContain('+02:00');
    type(input(place, '/at'), '2026-11-21T11:30');
    expect(latest).toEqual({ at: '2026-11-21T11:30:00+02:00' });
  });

  it('shows a text that is no date as text', () => {
    const place = open({ at: { type: 'string', format: 'date' } }, { at: 'tomorrow' });
    expect(input(place, '/at')?.type).toBe('text');
  });

  it('shows masked values as kept, until they are replaced', () => {
    const place = open({ password: { type: 'string' } }, { password: '[redacted]' }, {}, { masked: ['/password'] });
    expect(place.textContent).not.toContain('[redacted]');
    press(button(place, 'Replace'));
    expect(latest).toEqual({ password: '' });
  });

  it('shows what a changed field was', () => {
    const place = open({ euro: { type: 'number' } }, { euro: 900 }, {}, { original: { euro: 900 } });
    type(input(place, '/euro'), '90');
    expect(place.querySelector('s')?.textContent).toBe('900');
  });

  it('shows issues of the gateway at their fields', () => {
    const place = open({ euro: { type: 'number' } }, { euro: 900 }, {}, { issues: [{ pointer: '/euro', message: 'too much' }] });
    expect(place.querySelector('[data-pointer="/euro"]')?.textContent).toContain('too much');
  });

  it('shows hostile names and descriptions as text', () => {
    const place = open({ '<img src=x onerror=alert(1)>': { type: 'string', description: '\u202e<script>' } }, { '<img src=x onerror=alert(1)>': '' });
    expect(place.querySelector('img, script')).toBeNull();
    expect(place.textContent).toContain('⟦U+202E⟧');
  });
});

describe('odd schemas render, and give back the value unchanged', () => {
  it.each<[JsonSchema, Json]>([
    [{}, { a: 1 }],
    [{ type: 'object' }, { b: [] }],
    [{ type: 'object', properties: { a: true, b: false } }, { a: 1, b: 2 }],
    [{ type: 'object', properties: { a: { $ref: '#/nowhere' } } }, { a: 'x' }],
    [{ type: 'object', properties: { a: { type: 'array' } } }, { a: [1, 'b', null] }],
    [{ type: 'object', properties: { a: { type: 'array', items: false } } }, { a: [] }],
    [{ type: 'object', properties: { a: { enum: [] } } }, { a: 1 }],
    [{ type: 'object', properties: { a: { oneOf: [] } } }, { a: 1 }],
    [{ type: 'object', properties: { a: { type: 'string', minLength: 'x' } } }, { a: 1 }],
    [{ type: 'object', properties: { a: { type: 'array', items: { type: 'string' } } } }, { a: 'not a list' }],
    [{ type: 'object', properties: { a: { type: 'object', properties: { b: {} } } } }, { a: null }],
    [{ oneOf: [{ type: 'object', properties: { a: {} } }, { type: 'string' }] }, 'text'],
    [{ type: 'object', required: ['ghost'] }, { ghost: 1 }],
    [{ type: 'object', properties: { a: { anyOf: [{ $ref: '#/$defs/t' }, { type: 'null' }] } }, $defs: { t: { anyOf: [{ $ref: '#/$defs/t' }] } } }, { a: 3 }],
  ])('%j', (schema, value) => {
    latest = 'unchanged';
    show(<Form schema={schema} first={value} showAll />);
    expect(latest).toBe('unchanged');
    expect(() => initialValue(schema, { schema })).not.toThrow();
  });
});
