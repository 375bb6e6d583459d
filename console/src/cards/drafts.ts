/** Edited arguments that were not sent yet, in this tab; without secrets. */

import type { Card } from '../api/types';
import { fromPlain, isObject, plain, type Json } from '../schema/json';
import type { JsonSchema } from '../schema/resolve';
import { withoutSecrets } from '../schema/secrets';

const key = (card: Card) => `toolpost.draft.${card.id}`;

/** Whether an argument is masked, or contains what is. */
function isMasked(card: Card, name: string): boolean {
  const pointer = `/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`;
  return card.masked.some((path) => path === pointer || path.startsWith(`${pointer}/`));
}

export function keepDraft(card: Card, value: Json, schema: JsonSchema): void {
  if (!isObject(value)) return;
  const open = Object.fromEntries(Object.entries(value).filter(([name]) => !isMasked(card, name)));
  sessionStorage.setItem(key(card), JSON.stringify(plain(withoutSecrets(open, schema, { schema }))));
}

export function keptDraft(card: Card): Json | undefined {
  try {
    const kept = JSON.parse(sessionStorage.getItem(key(card)) ?? 'null') as Record<string, unknown> | null;
    if (!kept) return undefined;
    const masked = Object.fromEntries(Object.entries(card.arguments).filter(([name]) => isMasked(card, name)));
    return fromPlain({ ...kept, ...masked });
  } catch {
    return undefined;
  }
}

export function forgetDraft(card: Card): void {
  sessionStorage.removeItem(key(card));
}
