import { describe, expect, it } from 'vitest';

import { diffCounts } from '../card/gist';
import { diffLines, diffRows } from './diff-lines';

const DIFF = `--- a/config/prices.toml
+++ b/config/prices.toml
@@ -11,4 +11,6 @@
 [lamps]
 currency = "EUR"
-lamp-2 = 19.00
+lamp-2 = 21.00
+lamp-3 = 34.50
 
\\ No newline at end of file
`;

describe('a diff', () => {
  it('has the numbers of its lines', () => {
    const shown = diffLines(DIFF).map(({ kind, number }) => [kind, number]);
    expect(shown).toEqual([
      ['hunk', 11],
      ['same', 11],
      ['same', 12],
      ['removed', 13],
      ['added', 13],
      ['added', 14],
      ['same', 15],
    ]);
  });

  it('marks the words that changed', () => {
    const changed = diffLines(DIFF).flatMap((line) => line.words.filter((word) => word.changed).map((word) => word.text));
    expect(changed).toEqual(['19', '21']);
  });

  it('does not mark lines that have nothing in common', () => {
    const lines = diffLines('@@ -1 +1 @@\n-all of this goes\n+nothing stays\n');
    expect(lines.every((line) => line.words.every((word) => !word.changed))).toBe(true);
  });

  it('marks a phrase as one part, with the blanks between its words', () => {
    const [, old, now] = diffLines('@@ -1 +1 @@\n-Restart one service and wait for it.\n+Restart one service now.\n');
    const changed = [old, now].map((line) => line?.words.filter((word) => word.changed).map((word) => word.text));

    expect(changed).toEqual([['and wait for it'], ['now']]);
  });

  it('has its removed lines beside those that were added instead of them', () => {
    const numbers = diffRows(diffLines(DIFF)).map(({ old, now }) => [old?.old, now?.number]);

    expect(numbers).toEqual([
      [11, 11],
      [11, 11],
      [12, 12],
      [13, 13],
      [undefined, 14],
      [14, 15],
    ]);
  });

  it('says which file it is about, and how much', () => {
    expect(diffCounts(DIFF)).toEqual({ path: 'config/prices.toml', added: 2, removed: 1 });
  });

  it('keeps lines that look like headers inside of a hunk', () => {
    expect(diffLines('@@ -1 +1 @@\n--- x\n+++ y\n').map((line) => line.kind)).toEqual(['hunk', 'removed', 'added']);
  });
});
