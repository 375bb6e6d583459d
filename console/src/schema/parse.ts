/** Parses JSON without loss: numbers keep their text, and an error says its line and column. */

import { schemaWords } from '../words';
import { numberOf, type Json, type JsonObject } from './json';

export class JsonSyntaxError extends Error {
  readonly line: number;
  readonly column: number;

  constructor(text: string, at: number, message: string) {
    super(message);
    const before = text.slice(0, at).split('\n');
    this.line = before.length;
    this.column = (before.at(-1)?.length ?? 0) + 1;
  }
}

const SPACE = /[ \t\r\n]*/y;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const WORDS: readonly [string, null | boolean][] = [['true', true], ['false', false], ['null', null]];
const DEEPEST = 500;

/** Parse JSON text. Throws a `JsonSyntaxError`. */
export function parseJson(text: string): Json {
  const reader = new Reader(text);
  const value = reader.value(0);
  reader.end();
  return value;
}

/** The value of a text, or its error, for editors. */
export function tryParse(text: string): { value: Json } | { error: JsonSyntaxError } {
  try {
    return { value: parseJson(text) };
  } catch (error) {
    if (error instanceof JsonSyntaxError) return { error };
    throw error;
  }
}

class Reader {
  private at = 0;

  constructor(private readonly text: string) {
    this.skipSpace();
  }

  value(depth: number): Json {
    if (depth > DEEPEST) this.fail(schemaWords.parse.deep);
    const start = this.text[this.at];
    if (start === '{') return this.object(depth);
    if (start === '[') return this.array(depth);
    if (start === '"') return this.string();
    for (const [word, value] of WORDS) if (this.takes(word)) return value;
    return this.number();
  }

  end(): void {
    if (this.at < this.text.length) this.fail(schemaWords.parse.after);
  }

  private object(depth: number): JsonObject {
    const entries: [string, Json][] = [];
    this.takes('{');
    if (this.takes('}')) return {};
    do {
      if (this.text[this.at] !== '"') this.fail(schemaWords.parse.name);
      const name = this.string();
      if (!this.takes(':')) this.fail(schemaWords.parse.colon);
      entries.push([name, this.value(depth + 1)]);
    } while (this.takes(','));
    if (!this.takes('}')) this.fail(schemaWords.parse.objectEnd);
    // Unlike assignment, this keeps a name such as __proto__ as an ordinary name.
    return Object.fromEntries(entries);
  }

  private array(depth: number): Json[] {
    const items: Json[] = [];
    this.takes('[');
    if (this.takes(']')) return items;
    do items.push(this.value(depth + 1));
    while (this.takes(','));
    if (!this.takes(']')) this.fail(schemaWords.parse.arrayEnd);
    return items;
  }

  private string(): string {
    const found = this.match(STRING);
    if (found === undefined) this.fail(schemaWords.parse.string);
    return JSON.parse(found) as string;
  }

  private number(): Json {
    const found = this.match(NUMBER);
    const value = found === undefined ? undefined : numberOf(found);
    if (value === undefined) this.fail(this.at >= this.text.length ? schemaWords.parse.early : schemaWords.parse.value);
    return value;
  }

  private takes(word: string): boolean {
    if (!this.text.startsWith(word, this.at)) return false;
    this.at += word.length;
    this.skipSpace();
    return true;
  }

  private match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text)?.[0];
    if (found === undefined) return undefined;
    this.at += found.length;
    this.skipSpace();
    return found;
  }

  private skipSpace(): void {
    SPACE.lastIndex = this.at;
    this.at += SPACE.exec(this.text)?.[0].length ?? 0;
  }

  private fail(message: string): never {
    throw new JsonSyntaxError(this.text, this.at, message);
  }
}
