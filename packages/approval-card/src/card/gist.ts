/** The call of a card in one line: the path and size of a diff, or its shortest arguments. */

import type { PendingAction } from '../types';

const MOST_ARGUMENTS = 4;
const LONGEST_VALUE = 40;

export interface Gist {
  /** Of a diff. */
  path?: string;
  added?: number;
  removed?: number;
  arguments: { name: string; value: string }[];
}

export function gistOf(action: PendingAction): Gist {
  if (action.preview?.kind === 'diff') return { ...diffCounts(action.preview.text), arguments: [] };
  const values = Object.entries(flat(action.arguments))
    .filter(([name]) => !action.masked.includes(`/${name}`))
    .map(([name, value]) => ({ name, value: typeof value === 'string' ? value : JSON.stringify(value) }))
    .filter(({ value }) => value !== '' && value !== 'null');
  const shortest = new Set(
    values.toSorted((a, b) => a.value.length - b.value.length).slice(0, MOST_ARGUMENTS),
  );
  const shown = values.filter((one) => shortest.has(one));
  return { arguments: shown.map(({ name, value }) => ({ name, value: cutValue(value) })) };
}

/** An argument `body` stands for its own fields. */
function flat({ body, ...others }: Record<string, unknown>): Record<string, unknown> {
  const fields = typeof body === 'object' && body !== null && !Array.isArray(body) ? body : body !== undefined && { body };
  return { ...others, ...fields };
}

function cutValue(value: string): string {
  return value.length > LONGEST_VALUE ? `${value.slice(0, LONGEST_VALUE - 1)}…` : value;
}

/** The file of a unified diff, and how many lines it adds and removes. */
export function diffCounts(text: string): { path: string; added: number; removed: number } {
  const lines = text.split('\n');
  const body = lines.filter((line) => !/^(---|\+\+\+) /.test(line));
  const headers = lines.filter((line) => /^(---|\+\+\+) /.test(line) && !line.includes('/dev/null'));
  const [header = ''] = headers;
  return {
    path: header.slice(4).split('\t')[0]?.replace(/^[ab]\//, '').replace(/ \((?:now|new)\)$/, '') ?? '',
    added: body.filter((line) => line.startsWith('+')).length,
    removed: body.filter((line) => line.startsWith('-')).length,
  };
}
