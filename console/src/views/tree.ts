/** The rows of a JSON tree: which of them are visible, and which fit a search. */

import { isObject, pointerOf, stringify, type Json, type Path } from '../schema/json';

export interface TreeRow {
  pointer: string;
  path: Path;
  depth: number;
  /** Undefined at the root. */
  name: string | number | undefined;
  value: Json;
  children: number;
  open: boolean;
  /** Fits the search. */
  found: boolean;
}

const OPEN_DEPTH = 2;
const OPEN_ITEMS = 50;
const SHOWN_NAMES = 4;

/** Which rows a person opened or closed; others are open near the root. */
export type Opened = ReadonlyMap<string, boolean>;

/** All visible rows. With a search: the rows that fit it, and what they are inside of. */
export function treeRows(value: Json, opened: Opened, search = ''): TreeRow[] {
  const rows: TreeRow[] = [];
  addRows(rows, value, undefined, [], opened, search.toLowerCase());
  return rows;
}

function addRows(rows: TreeRow[], value: Json, name: string | number | undefined, path: Path, opened: Opened, search: string): boolean {
  const pointer = pointerOf(path);
  const inner = entriesOf(value);
  const found = search !== '' && fits(name, value, search);
  const open = opened.get(pointer) ?? (search !== '' || (path.length < OPEN_DEPTH && inner.length <= OPEN_ITEMS));
  const at = rows.length;
  rows.push({ pointer, path, depth: path.length, name, value, children: inner.length, open: open && inner.length > 0, found });
  let kept = search === '' || found;
  if (open || search !== '') {
    for (const [step, one] of inner) {
      const below = addRows(rows, one, step, [...path, step], opened, search);
      kept ||= below;
    }
  }
  if (!kept) rows.length = at;
  return kept;
}

function fits(name: string | number | undefined, value: Json, search: string): boolean {
  if (String(name ?? '').toLowerCase().includes(search)) return true;
  const text = typeof value === 'string' ? value : isContainer(value) ? '' : stringify(value);
  return text.toLowerCase().includes(search);
}

export function isContainer(value: Json): value is Json[] | Record<string, Json> {
  return Array.isArray(value) || isObject(value);
}

function entriesOf(value: Json): [string | number, Json][] {
  if (Array.isArray(value)) return value.map((one, index) => [index, one]);
  return isObject(value) ? Object.entries(value) : [];
}

/** A closed list or object in short: `[ 3 ]`, `{ id, state, … }`. */
export function shortOf(value: Json): string {
  if (Array.isArray(value)) return `[ ${value.length} ]`;
  if (!isObject(value)) return '';
  const names = Object.keys(value);
  if (names.length > SHOWN_NAMES) return `{ ${names.length} }`;
  return names.length === 0 ? '{ }' : `{ ${names.join(', ')} }`;
}

/** The path as a program writes it: `$.items[2]["odd name"]`. */
export function spellPath(path: Path): string {
  const spell = (step: string | number) => {
    if (typeof step === 'number') return `[${step}]`;
    return /^[A-Za-z_$][\w$]*$/.test(step) ? `.${step}` : `[${JSON.stringify(step)}]`;
  };
  return `$${path.map(spell).join('')}`;
}
