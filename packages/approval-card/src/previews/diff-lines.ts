/** A unified diff as lines with their numbers, and the words that changed inside of changed pairs. */

import { diffWordsWithSpace } from 'diff';

export interface Word {
  text: string;
  changed: boolean;
}

export interface DiffLine {
  kind: 'same' | 'added' | 'removed' | 'hunk';
  /** The number in the new file; of a removed line in the old one. */
  number: number | undefined;
  words: Word[];
}

const HUNK = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/;
const LONGEST_PAIR = 2000;

export function diffLines(text: string): DiffLine[] {
  const lines: DiffLine[] = [];
  let oldNumber = 1;
  let newNumber = 1;
  for (const line of bodyOf(text)) {
    const hunk = HUNK.exec(line);
    if (hunk) {
      oldNumber = Number(hunk[1]);
      newNumber = Number(hunk[2]);
      lines.push({ kind: 'hunk', number: newNumber, words: [] });
    } else if (line.startsWith('+')) lines.push(lineOf('added', newNumber++, line));
    else if (line.startsWith('-')) lines.push(lineOf('removed', oldNumber++, line));
    else if (!line.startsWith('\\')) {
      lines.push(lineOf('same', newNumber++, line));
      oldNumber += 1;
    }
  }
  return markWords(lines);
}

function bodyOf(text: string): string[] {
  const lines = text.replace(/\n$/, '').split('\n');
  const first = lines.findIndex((line) => HUNK.test(line));
  return first < 0 ? lines.filter((line) => !/^(---|\+\+\+|diff |index )/.test(line)) : lines.slice(first);
}

function lineOf(kind: DiffLine['kind'], number: number, line: string): DiffLine {
  return { kind, number, words: [{ text: line.slice(1), changed: false }] };
}

/** Mark the words that differ where as many lines were removed as added, one by one. */
function markWords(lines: DiffLine[]): DiffLine[] {
  for (let at = 0; at < lines.length; at += 1) {
    const removed = countOf(lines, at, 'removed');
    if (removed === 0) continue;
    const added = countOf(lines, at + removed, 'added');
    for (let index = 0; index < Math.min(removed, added); index += 1) {
      markPair(lines[at + index], lines[at + removed + index]);
    }
    at += removed + added - 1;
  }
  return lines;
}

function countOf(lines: DiffLine[], from: number, kind: DiffLine['kind']): number {
  let count = 0;
  while (lines[from + count]?.kind === kind) count += 1;
  return count;
}

function markPair(before: DiffLine | undefined, after: DiffLine | undefined): void {
  const [old, now] = [before?.words[0]?.text, after?.words[0]?.text];
  if (!before || !after || old === undefined || now === undefined) return;
  if (old.length + now.length > LONGEST_PAIR) return;
  const parts = diffWordsWithSpace(old, now);
  const kept = parts.filter((part) => !part.added && !part.removed).reduce((sum, part) => sum + part.value.trim().length, 0);
  // Lines that have little in common are simply one line instead of another.
  if (kept * 3 < Math.min(old.length, now.length)) return;
  before.words = parts.filter((part) => !part.added).map((part) => ({ text: part.value, changed: part.removed }));
  after.words = parts.filter((part) => !part.removed).map((part) => ({ text: part.value, changed: part.added }));
}
