/** What a person changed, as JSON Patch (RFC 6902): only the changed places, so that masked values are never sent. */

import { equal, isObject, plain, pointerOf, type Json, type Path } from './json';

export interface Change {
  op: 'add' | 'replace' | 'remove';
  path: string;
  value?: Json;
}

/** The changes that make `after` out of `before`. Arrays of another length are replaced as a whole. */
export function changesBetween(before: Json, after: Json, path: Path = []): Change[] {
  if (equal(before, after)) return [];
  if (isObject(before) && isObject(after)) return objectChanges(before, after, path);
  if (Array.isArray(before) && Array.isArray(after) && before.length === after.length) {
    return after.flatMap((one, index) => changesBetween(before[index] ?? null, one, [...path, index]));
  }
  return [{ op: 'replace', path: pointerOf(path), value: after }];
}

function objectChanges(before: Record<string, Json>, after: Record<string, Json>, path: Path): Change[] {
  const removed = Object.keys(before).filter((name) => !Object.hasOwn(after, name));
  const changed = Object.entries(after).flatMap(([name, value]): Change[] => {
    const inner = [...path, name];
    const old = Object.hasOwn(before, name) ? before[name] : undefined;
    return old === undefined ? [{ op: 'add', path: pointerOf(inner), value }] : changesBetween(old, value, inner);
  });
  return [...removed.map((name): Change => ({ op: 'remove', path: pointerOf([...path, name]) })), ...changed];
}

/** The changes with plain numbers, for a body that is written by JSON.stringify. */
export function plainChanges(changes: readonly Change[]): { op: Change['op']; path: string; value?: unknown }[] {
  return changes.map(({ op, path, value }) => (value === undefined ? { op, path } : { op, path, value: plain(value) }));
}
