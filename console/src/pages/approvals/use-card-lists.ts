import { useQuery } from '@tanstack/react-query';
import { useSearch } from '@tanstack/react-router';
import { useMemo } from 'react';

import { closedCardsQuery, openCardsQuery } from '../../api/queries';
import { useMe } from '../../api/session';
import type { Card } from '../../api/types';
import { byAnswer, byUrgency, filterCards } from '../../cards/list';
import { usePostponed } from '../../cards/postponed';
import { useNow } from '../../format/clock';

export interface CardLists {
  /** All cards of the tab, before the filters. */
  all: Card[];
  shown: Card[];
  /** How many are open and fit the filters. */
  open: number;
  loading: boolean;
  error: Error | null;
  retry: () => void;
}

/** The cards of the tab that the address names, filtered and in order. */
export function useCardLists(): CardLists {
  const me = useMe();
  const now = useNow(60);
  const postponed = usePostponed();
  const { status, mine, tool, kind, by } = useSearch({ strict: false });
  const open = useQuery(openCardsQuery);
  const closed = useQuery({ ...closedCardsQuery, enabled: status !== undefined });

  return useMemo(() => {
    const filter = { mine: mine !== 'no', tool, kind, by };
    const openCards = filterCards(open.data ?? [], filter, me)
      .filter((card) => (postponed[card.id] ?? 0) < now)
      .sort(byUrgency(now));
    const wanted = (card: Card) => (card.status === 'expired') === (status === 'expired');
    const closedCards = (closed.data ?? []).filter(wanted);
    const query = status === undefined ? open : closed;
    return {
      all: status === undefined ? (open.data ?? []) : closedCards,
      shown:
        status === undefined ? openCards : filterCards(closedCards, { ...filter, mine: false }, me).sort(byAnswer),
      open: openCards.length,
      loading: query.isPending,
      error: query.error,
      retry: () => void query.refetch(),
    };
  }, [me, now, postponed, status, mine, tool, kind, by, open, closed]);
}
