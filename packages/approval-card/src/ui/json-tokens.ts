/** JSON as text in pieces of one colour each. */

export type TokenKind = 'key' | 'string' | 'number' | 'boolean' | 'mark';

export interface Token {
  kind: TokenKind;
  text: string;
}

const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(true|false|null)|([^"\d\-tfn]+|.)/gs;

export function jsonTokens(text: string): Token[] {
  return [...text.matchAll(TOKEN)].flatMap(([whole, string, colon, number, word]): Token[] => {
    if (string !== undefined && colon !== undefined) return [{ kind: 'key', text: string }, { kind: 'mark', text: colon }];
    if (string !== undefined) return [{ kind: 'string', text: string }];
    if (number !== undefined) return [{ kind: 'number', text: number }];
    return [{ kind: word === undefined ? 'mark' : 'boolean', text: whole }];
  });
}
