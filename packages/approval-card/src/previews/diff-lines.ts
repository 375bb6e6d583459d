/** A unified diff as lines with their numbers, and the words that changed inside of changed pairs. */

import { diffWordsWithSpace, type ChangeObject } from 'diff';

export interface Word {
  text: string;
  changed: boolean;
}

export interface DiffLine {
  kind: 'same' | 'added' | 'removed' | 'hunk';
  /** The number in the new file; of a removed line in the old one. */
  number: number | undefined;
  /** The number in the old file, of lines that are in it. */
  old: number | undefined;
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
      lines.push({ kind: 'hunk', number: newNumber, old: oldNumber, words: [] });
    } else if (line.startsWith('+')) lines.push(lineOf('added', newNumber++, undefined, line));
    else if (line.startsWith('-')) {
      lines.push(lineOf('removed', oldNumber, oldNumber, line));
      oldNumber += 1;
    }
    else if (!line.startsWith('\\')) {
      lines.push(lineOf('same', newNumber++, oldNumber, line));
      oldNumber += 1;
    }
  }
  return markWords(lines);
}

/** A row of a diff whose old and new lines stand side by side. */
export interface DiffRow {
  old: DiffLine | undefined;
  now: DiffLine | undefined;
}

/** The lines in pairs: removed lines beside those that were added instead of them. */
export function diffRows(lines: readonly DiffLine[]): DiffRow[] {
  const rows: DiffRow[] = [];
  for (let at = 0; at < lines.length; ) {
    const line = lines[at] as DiffLine;
    if (line.kind === 'same' || line.kind === 'hunk') {
      rows.push({ old: line, now: line });
      at += 1;
      continue;
    }
    const removed = countOf(lines, at, 'removed');
    const added = countOf(lines, at + removed, 'added');
    for (let index = 0; index < Math.max(removed, added); index += 1) {
      rows.push({
        old: index < removed ? lines[at + index] : undefined,
        now: index < added ? lines[at + removed + index] : undefined,
      });
    }
    at += removed + added;
  }
  return rows;
}

function bodyOf(text: string): string[] {
  const lines = text.replace(/\n$/, '').split('\n');
  const first = lines.findIndex((line) => HUNK.test(line));
  return first < 0 ? lines.filter((line) => !/^(---|\+\+\+|diff |index )/.test(line)) : lines.slice(first);
}

function lineOf(kind: DiffLine['kind'], number: number, old: number | undefined, line: string): DiffLine {
  return { kind, number, old, words: [{ text: line.slice(1), changed: false }] };
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

/** The words of two texts that differ. Blanks between two changes belong to them, so that a changed phrase is one part. */
export function diffWords(before: string, after: string): ChangeObject<string>[] {
  const found = diffWordsWithSpace(before, after);
  const parts: ChangeObject<string>[] = [];
  let at = 0;
  while (at < found.length) {
    const run = changesFrom(found, at);
    if (run === 0) parts.push(found[at] as ChangeObject<string>);
    else parts.push(...joined(found.slice(at, at + run)));
    at += run || 1;
  }
  return parts;
}

/** How many parts from here on are changes, or blanks between them. */
function changesFrom(parts: readonly ChangeObject<string>[], from: number): number {
  let end = from;
  for (let at = from; at < parts.length; at += 1) {
    const part = parts[at] as ChangeObject<string>;
    if (part.added || part.removed) end = at + 1;
    else if (part.value.trim() !== '') break;
  }
  return end - from;
}

function joined(parts: readonly ChangeObject<string>[]): ChangeObject<string>[] {
  const text = (not: 'added' | 'removed') => parts.filter((part) => !part[not]).map((part) => part.value).join('');
  const sides = [
    { value: text('added'), added: false, removed: true, count: 1 },
    { value: text('removed'), added: true, removed: false, count: 1 },
  ];
  return sides.filter((side) => side.value !== '');
}

function countOf(lines: readonly DiffLine[], from: number, kind: DiffLine['kind']): number {
  let count = 0;
  while (lines[from + count]?.kind === kind) count += 1;
  return count;
}

function markPair(before: DiffLine | undefined, after: DiffLine | undefined): void {
  const [old, now] = [before?.words[0]?.text, after?.words[0]?.text];
  if (!before || !after || old === undefined || now === undefined) return;
  if (old.length + now.length > LONGEST_PAIR) return;
  const parts = diffWords(old, now);
  const kept = parts.filter((part) => !part.added && !part.removed).reduce((sum, part) => sum + part.value.trim().length, 0);
  // Lines that have little in common are simply one line instead of another.
  if (kept * 3 < Math.min(old.length, now.length)) return;
  before.words = parts.filter((part) => !part.added).map((part) => ({ text: part.value, changed: part.removed }));
  after.words = parts.filter((part) => !part.removed).map((part) => ({ text: part.value, changed: part.added }));
}
