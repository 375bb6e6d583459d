import { describe, expect, it } from 'vitest';

import { indentJson } from './json';

describe('JSON of others', () => {
  it('has one member on a line, and short lists on one', () => {
    const text = '{"amount":900.0,"lines":[{"sku":"LAMP-2","quantity":1}],"note":"a, b: {c}"}';

    expect(indentJson(text)).toBe(
      '{\n  "amount": 900.0,\n  "lines": [{ "sku": "LAMP-2", "quantity": 1 }],\n  "note": "a, b: {c}"\n}',
    );
  });

  it('keeps numbers as they are written', () => {
    expect(indentJson('[12345678901234567890, 1e400, 1.00]')).toBe('[\n  12345678901234567890,\n  1e400,\n  1.00\n]');
  });

  it.each(['{}', '[]', '"text"', 'null'])('leaves %s', (text) => {
    expect(indentJson(text)).toBe(text);
  });

  it('is undefined for other text', () => {
    expect(indentJson('a=1&b=2')).toBeUndefined();
  });
});
