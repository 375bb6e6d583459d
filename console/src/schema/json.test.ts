import { describe, expect, it } from 'vitest';

import { equal, ExactNumber, stringify } from './json';
import { JsonSyntaxError, parseJson } from './parse';

describe('numbers keep the text in which they are written', () => {
  it.each(['12345678901234567890', '1e400', '900.00', '-0', '0.1', '1E5', '123456789.123456789123'])('%s', (text) => {
    expect(stringify(parseJson(`{"a":[${text}]}`))).toBe(`{"a":[${text}]}`);
  });

  it('are plain where JavaScript writes the same text', () => {
    expect(parseJson('[1, -2.5, 0]')).toEqual([1, -2.5, 0]);
  });

  it('are not equal to others that only round to the same', () => {
    expect(equal(new ExactNumber('12345678901234567890'), new ExactNumber('12345678901234567891'))).toBe(false);
  });
});

describe('JSON text', () => {
  it.each(['null', '"a\\u0000\\"b"', '[]', '{}', '[[],{}]', '{"__proto__":1,"constructor":2}', '"\\ud800"'])('of %s is read and written', (text) => {
    expect(stringify(parseJson(text))).toBe(text);
  });

  it.each([
    ['{"a" 1}', 1, 6],
    ['[1,\n 2,\n x]', 3, 2],
    ['{"a": 01}', 1, 8],
    ['', 1, 1],
    ['{"a":1,}', 1, 8],
    ['"line\nbreak"', 1, 1],
    ['[1] 2', 1, 5],
    ["{'a':1}", 1, 2],
  ])('%j is refused at line %d, column %d', (text, line, column) => {
    expect(() => parseJson(text)).toThrow(expect.objectContaining({ line, column }) as JsonSyntaxError);
  });

  it('is refused when it is nested beyond reason', () => {
    expect(() => parseJson('['.repeat(2000))).toThrow(JsonSyntaxError);
  });

  it('is indented on request', () => {
    expect(stringify({ a: [1, {}], b: [] }, 2)).toBe('{\n  "a": [\n    1,\n    {}\n  ],\n  "b": []\n}');
  });
});
