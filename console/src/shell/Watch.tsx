import { useQuery } from '@tanstack/react-query';
import { useRouterState } from '@tanstack/react-router';
import { useEffect, useMemo, useRef, useState, useSyncExternalStore } from 'react';

import { refreshMe } from '../api/own-build';
import { openCardsQuery } from '../api/queries';
import { useMe } from '../api/session';
import type { Card } from '../api/types';
import { mayAnswer } from '../cards/answering';
import { onFinished, type Phase } from '../cards/answers';
import { shortUser } from '../cards/kinds';
import { isLive, onLive } from '../live/live';
import { visible } from '../ui/foreign-text';
import { toast } from '../ui/Toast';
import { words } from '../words';
import { preferences } from './preferences';
import { showWaiting } from './title';

const ANNOUNCE_EVERY_MS = 5000;

/** Watches what waits for this person: the title and icon of the tab, what screen readers hear, and toasts. */
export function Watch() {
  const me = useMe();
  const cards = useQuery(openCardsQuery).data;
  const mine = useMemo(() => cards?.filter((card) => mayAnswer(card, me)), [cards, me]);
  const count = mine?.length ?? 0;
  useEffect(() => showWaiting(count), [count]);
  useFinishedToasts();
  useFreshMe();
  return (
    <span className="visually-hidden" role="status">
      {useAnnouncement(mine)}
    </span>
  );
}

/** Each time the stream opens, the gateway may be another one, or the person may have other scopes. */
function useFreshMe(): void {
  const isOpen = useSyncExternalStore(onLive, isLive);
  useEffect(() => {
    if (isOpen) void refreshMe();
  }, [isOpen]);
}

/** The outcome of an answer whose card is no longer on the screen. */
function useFinishedToasts(): void {
  const path = useRouterState({ select: (state) => state.location.pathname });
  useEffect(
    () =>
      onFinished((card, phase) => {
        if (!path.endsWith(`/${card.id}`)) toast(visible(card.tool_name), finishedWords(phase));
      }),
    [path],
  );
}

function finishedWords(phase: Phase): string {
  if (phase.at === 'refused') return visible(phase.problem.detail);
  if (phase.at !== 'ended') return words.cards.answeredElsewhere;
  if (phase.decision === 'deny') return words.cards.denied;
  return phase.outcome?.status === 'failed' ? words.cards.failed : words.cards.approved;
}

/** New questions in words, at most one announcement in five seconds. */
function useAnnouncement(mine: Card[] | undefined): string {
  const known = useRef<Set<string>>(undefined);
  const [text, setText] = useState('');
  useEffect(() => {
    if (!mine) return undefined;
    const fresh = known.current ? mine.filter((card) => !known.current?.has(card.id)) : [];
    known.current = new Set(mine.map((card) => card.id));
    if (fresh.length === 0) return undefined;
    notify(fresh);
    const timer = setTimeout(() => setText(announcement(fresh)), 0);
    const later = setTimeout(() => setText(''), ANNOUNCE_EVERY_MS);
    return () => {
      clearTimeout(timer);
      clearTimeout(later);
    };
  }, [mine]);
  return text;
}

function announcement(fresh: Card[]): string {
  const [card] = fresh;
  if (fresh.length > 1 || !card) return words.approvals.announceMany(fresh.length);
  return words.approvals.announce(visible(card.tool_name), visible(shortUser(card.asked_by)));
}

/** A notification of the system says who asks for which tool, and never the arguments. */
function notify(fresh: Card[]): void {
  const wanted = preferences().notifications && document.visibilityState === 'hidden';
  if (wanted && 'Notification' in window && Notification.permission === 'granted') {
    new Notification(words.product, { body: announcement(fresh), tag: 'toolpost' });
  }
}
