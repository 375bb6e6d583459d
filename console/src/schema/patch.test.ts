import { describe, expect, it } from 'vitest';

import { changesBetween } from './patch';

describe('a change of arguments', () => {
  it('names only what changed', () => {
    expect(changesBetween({ euro: 900, to: 'dora' }, { euro: 90, to: 'dora' })).toEqual([
      { op: 'replace', path: '/euro', value: 90 },
    ]);
  });

  it('adds and removes', () => {
    expect(changesBetween({ a: 1 }, { b: 2 })).toEqual([
      { op: 'remove', path: '/a' },
      { op: 'add', path: '/b', value: 2 },
    ]);
  });

  it('goes into objects and lists of the same length', () => {
    expect(changesBetween({ x: { y: [1, { z: 2 }] } }, { x: { y: [1, { z: 3 }] } })).toEqual([
      { op: 'replace', path: '/x/y/1/z', value: 3 },
    ]);
  });

  it('replaces a list of another length', () => {
    expect(changesBetween({ x: [1] }, { x: [1, 2] })).toEqual([{ op: 'replace', path: '/x', value: [1, 2] }]);
  });

  it('writes names as pointers', () => {
    expect(changesBetween({ 'a/b~c': 1 }, { 'a/b~c': 2 })).toEqual([{ op: 'replace', path: '/a~1b~0c', value: 2 }]);
  });

  it('is empty when nothing changed', () => {
    expect(changesBetween({ password: '[redacted]' }, { password: '[redacted]' })).toEqual([]);
  });
});
