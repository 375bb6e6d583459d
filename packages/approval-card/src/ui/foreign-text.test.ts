import { describe, expect, it } from 'vitest';

import { cut, mixesScripts, visible } from './foreign-text';

describe('hidden characters', () => {
  it.each([
    ['pay\u202Egnp.exe', 'pay⟦U+202E⟧gnp.exe'],
    ['a\u200Bb', 'a⟦U+200B⟧b'],
    ['\u0000\u001b[31mred', '⟦U+0000⟧⟦U+001B⟧[31mred'],
    ['x\u{E0041}y', 'x⟦U+E0041⟧y'],
    ['\u2066a\u2069', '⟦U+2066⟧a⟦U+2069⟧'],
    ['soft\u00ADhyphen', 'soft⟦U+00AD⟧hyphen'],
  ])('%j are shown by their number', (hostile, shown) => {
    expect(visible(hostile)).toBe(shown);
  });

  it.each(['plain', 'line\nbreak\ttab', 'Ünïcödé 日本語 العربية', '👩‍👩‍👧', '❤️'])('%j is left as it is', (harmless) => {
    expect(visible(harmless)).toBe(harmless);
  });
});

describe('cutting', () => {
  it('leaves short text alone', () => {
    expect(cut('short', 300)).toEqual({ shown: 'short', leftOut: 0 });
  });

  it('counts the bytes that it leaves out', () => {
    expect(cut('abcé', 3)).toEqual({ shown: 'abc', leftOut: 2 });
  });

  it('never splits a character in two', () => {
    expect(cut('ab😀', 3).shown).toBe('ab');
  });
});

describe('names of mixed scripts', () => {
  it('are found', () => expect(mixesScripts('github.mеrge')).toBe(true));
  it('are not those of one script', () => expect(mixesScripts('github.merge_2')).toBe(false));
});
