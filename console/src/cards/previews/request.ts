/** An HTTP request of a card: as the gateway describes it, or what its template and the arguments say. */

import type { Card } from '../../api/types';

export interface UrlPart {
  text: string;
  /** An argument that stands in the URL. */
  filled: boolean;
}

export interface RequestView {
  method: string;
  url: UrlPart[];
  headers: { name: string; value: string | null; masked_by?: string }[];
  query: [string, unknown][];
  body: unknown;
  contentType: string;
  /** Whether the body is the rest of the arguments, because the gateway does not say more. */
  guessed: boolean;
}

export function requestOf(card: Card): RequestView {
  const preview = (card.preview ?? {}) as Partial<Record<string, unknown>>;
  const text = typeof preview.text === 'string' ? preview.text : '';
  const space = text.indexOf(' ');
  const method = textIn(preview.method) ?? (space > 0 ? text.slice(0, space) : '');
  const template = textIn(preview.url) ?? text.slice(space + 1);
  const { parts, used } = filledUrl(template, card.arguments);
  const described = 'body' in preview || 'headers' in preview;
  return {
    method,
    url: parts,
    headers: Array.isArray(preview.headers) ? (preview.headers as RequestView['headers']) : [],
    query: isRecord(preview.query) ? Object.entries(preview.query) : [],
    body: described ? preview.body : restOf(card.arguments, used),
    contentType: textIn(preview.content_type) ?? '',
    guessed: !described,
  };
}

/** The words of a command: as the gateway describes them, or the template with the arguments put in. */
export function commandOf(card: Card): UrlPart[][] {
  const preview = (card.preview ?? {}) as Partial<Record<string, unknown>>;
  if (Array.isArray(preview.argv)) return preview.argv.map((word) => [{ text: String(word), filled: false }]);
  const text = textIn(preview.text) ?? '';
  return splitWords(text).map((word) => filledUrl(word, card.arguments).parts);
}

/** A template such as `/orders/{order}` with the arguments put in, and which of them were used. */
export function filledUrl(template: string, values: Record<string, unknown>): { parts: UrlPart[]; used: Set<string> } {
  const used = new Set<string>();
  const parts = template.split(/(\{[^{}]+\})/).flatMap((part): UrlPart[] => {
    const name = /^\{[+/?&#;.]?([^{}*:]+)[^{}]*\}$/.exec(part)?.[1];
    if (part === '') return [];
    if (name === undefined || !(name in values)) return [{ text: part, filled: false }];
    used.add(name);
    const value = values[name];
    return [{ text: typeof value === 'string' ? value : JSON.stringify(value), filled: true }];
  });
  return { parts, used };
}

/** Words of a shell line; quotes hold a word together. */
function splitWords(text: string): string[] {
  const words = text.match(/(?:'[^']*'|"[^"]*"|\S)+/g) ?? [];
  return words.map((word) => word.replace(/^'(.*)'$/s, '$1').replace(/^"(.*)"$/s, '$1'));
}

function textIn(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The arguments that are not in the URL; an argument `body` alone is the body. */
function restOf(values: Record<string, unknown>, used: Set<string>): unknown {
  const rest = Object.fromEntries(Object.entries(values).filter(([name]) => !used.has(name)));
  return Object.keys(rest).length === 1 && 'body' in rest ? rest.body : rest;
}
