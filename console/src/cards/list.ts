/** Which cards a list shows, and in which order. */

import type { Me } from '../api/types';
import type { Card } from '../api/types';
import { fits, mayAnswer } from './answering';

export interface CardFilter {
  mine?: boolean;
  tool?: string;
  kind?: string;
  by?: string;
}

const HOUR = 3600;

export function filterCards(cards: readonly Card[], filter: CardFilter, me: Me): Card[] {
  return cards.filter(
    (card) =>
      (!filter.mine || mayAnswer(card, me)) &&
      (filter.tool === undefined || fits(card.tool_name, filter.tool)) &&
      (filter.kind === undefined || card.kind === filter.kind) &&
      (filter.by === undefined || card.asked_by === filter.by),
  );
}

/** What expires within an hour first, then the oldest first. */
export function byUrgency(now: number): (a: Card, b: Card) => number {
  const soon = (card: Card) => card.expires_at - now < HOUR;
  return (a, b) => {
    if (soon(a) !== soon(b)) return soon(a) ? -1 : 1;
    return soon(a) ? a.expires_at - b.expires_at : a.created_at - b.created_at;
  };
}

/** Closed cards: the last answered first. */
export function byAnswer(a: Card, b: Card): number {
  return (b.answered_at ?? b.expires_at) - (a.answered_at ?? a.expires_at);
}

/** The values that a filter offers. */
export function distinct(cards: readonly Card[], value: (card: Card) => string): string[] {
  return [...new Set(cards.map(value))].sort();
}
