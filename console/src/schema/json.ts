/** JSON values of forms. A number that JavaScript cannot represent as it is written keeps its text. */

/** A number as it is written, such as 1e400, 900.00 or an integer of twenty digits. */
export class ExactNumber {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

export type Json = null | boolean | number | string | ExactNumber | Json[] | JsonObject;
export interface JsonObject {
  [name: string]: Json;
}

/** The steps to a value: names of objects and positions in arrays. */
export type Path = readonly (string | number)[];

const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof ExactNumber);
}

export function isNumber(value: Json | undefined): value is number | ExactNumber {
  return typeof value === 'number' || value instanceof ExactNumber;
}

/** The number that a text is, in a form that is written back as the same text; undefined for other texts. */
export function numberOf(text: string): number | ExactNumber | undefined {
  if (!NUMBER.test(text)) return undefined;
  const value = Number(text);
  return String(value) === text ? value : new ExactNumber(text);
}

/** The value with plain numbers, for validation and comparison. */
export function plain(value: Json): unknown {
  if (value instanceof ExactNumber) return Number(value.text);
  if (Array.isArray(value)) return value.map(plain);
  if (isObject(value)) return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, plain(one)]));
  return value;
}

/** Any value of the API as JSON of a form; what JSON does not have is left out. */
export function fromPlain(value: unknown): Json {
  if (value === null || typeof value === 'boolean' || typeof value === 'number' || typeof value === 'string') return value;
  if (value instanceof ExactNumber) return value;
  if (Array.isArray(value)) return value.map(fromPlain);
  if (typeof value !== 'object') return null;
  const entries = Object.entries(value).filter(([, one]) => one !== undefined);
  return Object.fromEntries(entries.map(([name, one]) => [name, fromPlain(one)]));
}

/** Whether two values are the same text of JSON, whatever the order of their names. */
export function equal(a: Json | undefined, b: Json | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return canonical(a) === canonical(b);
}

/** The value at a path; undefined where there is none. */
export function valueAt(value: Json | undefined, path: Path): Json | undefined {
  let found = value;
  for (const step of path) {
    if (Array.isArray(found)) found = found[Number(step)];
    else if (isObject(found)) found = Object.hasOwn(found, step) ? found[step] : undefined;
    else return undefined;
  }
  return found;
}

/** The JSON Pointer (RFC 6901) of a path. */
export function pointerOf(path: Path): string {
  return path.map((step) => `/${String(step).replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');
}

/** The steps of a JSON Pointer. */
export function stepsOf(pointer: string): string[] {
  const steps = pointer.split('/').slice(1);
  return steps.map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'));
}

/** JSON text; `indent` spaces a level, or one line. */
export function stringify(value: Json, indent = 0): string {
  return write(value, indent, '');
}

function write(value: Json, indent: number, margin: string): string {
  if (value instanceof ExactNumber) return value.text;
  if (Array.isArray(value)) {
    return enclose('[]', value.map((one) => write(one, indent, margin + ' '.repeat(indent))), indent, margin);
  }
  if (!isObject(value)) return JSON.stringify(value);
  const colon = indent > 0 ? ': ' : ':';
  const inside = margin + ' '.repeat(indent);
  const entries = Object.entries(value).map(([name, one]) => JSON.stringify(name) + colon + write(one, indent, inside));
  return enclose('{}', entries, indent, margin);
}

function enclose(brackets: '[]' | '{}', parts: string[], indent: number, margin: string): string {
  const [open = '', close = ''] = brackets;
  if (parts.length === 0) return brackets;
  if (indent === 0) return open + parts.join(',') + close;
  const line = `\n${margin}${' '.repeat(indent)}`;
  return `${open}${line}${parts.join(`,${line}`)}\n${margin}${close}`;
}

function canonical(value: Json): string {
  return JSON.stringify(plain(value), (_, one: unknown) =>
    isObject(one) ? Object.fromEntries(Object.entries(one).sort(([a], [b]) => (a < b ? -1 : 1))) : one,
  ) + exactNumbers(value);
}

/** The texts of numbers whose plain value may be the same as another's. */
function exactNumbers(value: Json): string {
  if (value instanceof ExactNumber) return `#${value.text}`;
  if (Array.isArray(value)) return value.map(exactNumbers).join('');
  if (isObject(value)) {
    const names = Object.keys(value).sort();
    return names.map((name) => exactNumbers(value[name] ?? null)).join('');
  }
  return '';
}
