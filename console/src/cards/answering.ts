/** Who may answer a card, as far as the page can know. The gateway decides, and says it in `viewer` where it does. */

import type { Me } from '../api/types';
import type { Card } from '../api/types';

export { whyOnlyDeny } from '@toolpost/approval-card/card/decisions';

export type WhyNot = 'no_scope' | 'not_named' | 'own_call' | 'operator_only' | 'nobody';

/** Whether this person can answer an open card. */
export function mayAnswer(card: Card, me: Me): boolean {
  if (card.viewer) return card.viewer.may.length > 0;
  return whyNot(card, me) === undefined;
}

/** Why this person cannot answer a card; undefined if they can. */
export function whyNot(card: Card, me: Me): WhyNot | undefined {
  if (card.kind === 'restart') return 'nobody';
  if (card.kind === 'consent') return card.asked_by === me.user ? undefined : 'not_named';
  if (!me.scopes.includes('answer') || !matchesAny(card.tool_name, me.answers, true)) return 'no_scope';
  if (card.waits_for === 'operator' && !me.operator) return 'operator_only';
  if (card.answerers && !matchesAny(me.user, card.answerers, false)) return 'not_named';
  if (card.asked_by === me.user && !me.operator) return 'own_call';
  return card.four_eyes && card.asked_by === me.user ? 'own_call' : undefined;
}

/** Whether a name fits a pattern; `*` stands for any characters. */
export function fits(name: string, pattern: string): boolean {
  const parts = pattern.split('*').map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
  return new RegExp(`^${parts.join('.*')}$`).test(name);
}

function matchesAny(name: string, patterns: readonly string[], whenNone: boolean): boolean {
  if (patterns.length === 0) return whenNone;
  return patterns.some((pattern) => fits(name, pattern));
}
