/** The last events that this page saw, newest first, for *Just now* and for what runs at this moment. */

import { useSyncExternalStore } from 'react';

import type { Event } from '../api/types';

const KEPT = 500;

const listeners = new Set<() => void>();
let events: readonly Event[] = [];

export function recentEvents(): readonly Event[] {
  return events;
}

export function useRecentEvents(): readonly Event[] {
  return useSyncExternalStore(onRecent, recentEvents);
}

export function onRecent(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function rememberRecent(news: readonly Event[]): void {
  if (news.length === 0) return;
  const known = new Set(events.map((event) => event.id));
  const added = news.filter((event) => !known.has(event.id)).reverse();
  events = [...added, ...events].slice(0, KEPT);
  for (const listener of listeners) listener();
}

export function forgetRecent(): void {
  events = [];
  for (const listener of listeners) listener();
}
