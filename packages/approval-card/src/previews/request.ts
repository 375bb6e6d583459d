/** An HTTP request of a pending action: as the gateway describes it, or what its template and the arguments say. */

import type { PendingAction } from '../types';

export interface UrlPart {
  text: string;
  /** An argument that stands in the URL. */
  filled: boolean;
}

export interface RequestView {
  method: string;
  url: UrlPart[];
  headers: { name: string; value: string | null; masked_by?: string | null }[];
  query: { name: string; value: string }[];
  body: unknown;
  contentType: string;
  /** Whether the body is the rest of the arguments, because the gateway does not say more. */
  guessed: boolean;
}

export function requestOf({ preview, target, arguments: values }: PendingAction): RequestView {
  const text = preview?.text ?? '';
  const space = text.indexOf(' ');
  const { parts, used } = filledUrl(preview?.url ?? text.slice(space + 1), values);
  const described = preview?.body !== undefined || preview?.headers !== undefined;
  return {
    method: preview?.method ?? (space > 0 ? text.slice(0, space) : ''),
    url: preview?.url === undefined ? parts : markedUrl(preview.url, target?.summary ?? ''),
    headers: preview?.headers ?? [],
    query: Array.isArray(preview?.query) ? preview.query : [],
    body: described ? (preview.body ?? undefined) : restOf(values, used),
    contentType: preview?.content_type ?? '',
    guessed: !described,
  };
}

/** The words of a command: as the gateway describes them, or the template with the arguments put in. */
export function commandOf({ preview, arguments: values }: PendingAction): UrlPart[][] {
  if (preview?.argv) return preview.argv.map((word) => [{ text: word, filled: false }]);
  return splitWords(preview?.text ?? '').map((word) => filledUrl(word, values).parts);
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

/** The parts of a URL that the placeholders of its template stand for; without a template that fits, one part. */
export function markedUrl(url: string, template: string): UrlPart[] {
  const [first = '', ...fixed] = template.slice(template.indexOf(' ') + 1).split(/\{[^{}]+\}/);
  const parts: UrlPart[] = [{ text: first, filled: false }];
  if (!url.startsWith(first)) return [{ text: url, filled: false }];
  let at = first.length;
  for (const [index, text] of fixed.entries()) {
    const isLast = index === fixed.length - 1;
    const end = isLast ? url.length - text.length : text === '' ? -1 : url.indexOf(text, at);
    if (end < at || !url.startsWith(text, end)) return [{ text: url, filled: false }];
    parts.push({ text: url.slice(at, end), filled: true }, { text, filled: false });
    at = end + text.length;
  }
  if (at < url.length) return [{ text: url, filled: false }];
  return parts.filter((part) => part.text !== '');
}

/** Words of a shell line; quotes hold a word together. */
function splitWords(text: string): string[] {
  const words = text.match(/(?:'[^']*'|"[^"]*"|\S)+/g) ?? [];
  return words.map((word) => word.replace(/^'(.*)'$/s, '$1').replace(/^"(.*)"$/s, '$1'));
}

/** The arguments that are not in the URL; an argument `body` alone is the body. */
function restOf(values: Record<string, unknown>, used: Set<string>): unknown {
  const rest = Object.fromEntries(Object.entries(values).filter(([name]) => !used.has(name)));
  return Object.keys(rest).length === 1 && 'body' in rest ? rest.body : rest;
}
