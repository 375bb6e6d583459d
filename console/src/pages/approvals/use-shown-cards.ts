import { useState } from 'react';

import type { Card } from '../../api/types';

/**
 * The rows of a list that does not move under the pointer: while it is held, rows that are gone stay away, and new ones
 * wait until it is let go.
 */
export function useShownCards(cards: readonly Card[], held: boolean): { shown: Card[]; newer: number; showAll: () => void } {
  const [order, setOrder] = useState<readonly string[]>();
  const [wasHeld, setWasHeld] = useState(held);
  if (held !== wasHeld) {
    setWasHeld(held);
    setOrder(held ? cards.map((card) => card.id) : undefined);
  }
  if (!held || !order) return { shown: [...cards], newer: 0, showAll: () => undefined };
  const byId = new Map(cards.map((card) => [card.id, card]));
  const shown = order.flatMap((id) => byId.get(id) ?? []);
  return {
    shown,
    newer: cards.length - shown.length,
    showAll: () => setOrder(cards.map((card) => card.id)),
  };
}
