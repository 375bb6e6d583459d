/** Cards that a person put off, in this browser alone. They still expire. */

import { useSyncExternalStore } from 'react';

const KEY = 'toolpost.postponed';

const listeners = new Set<() => void>();
let until = read();

/** Until when each card is hidden, in Unix seconds. */
export function usePostponed(): Readonly<Record<string, number>> {
  return useSyncExternalStore(subscribe, () => until);
}

export function postpone(id: string, seconds: number): void {
  const now = Date.now() / 1000;
  const kept = Object.entries(until).filter(([, end]) => end > now);
  until = { ...Object.fromEntries(kept), [id]: now + seconds };
  localStorage.setItem(KEY, JSON.stringify(until));
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function read(): Record<string, number> {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? '{}') as Record<string, number>;
  } catch {
    return {};
  }
}
