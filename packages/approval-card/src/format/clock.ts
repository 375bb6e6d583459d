/** The gateway's time, which decides when questions expire, and hooks that follow it. */

import { useSyncExternalStore } from 'react';

let offsetMs = 0;

/** Take the gateway's clock from the `Date` header of an answer that took `tookMs`. */
export function measureClock(dateHeader: string | null, tookMs: number): void {
  const theirs = dateHeader === null ? NaN : Date.parse(dateHeader);
  // The header has whole seconds, so an offset below that says nothing.
  if (Number.isNaN(theirs)) return;
  const measured = theirs + 500 + tookMs / 2 - Date.now();
  offsetMs = Math.abs(measured) < 1500 ? 0 : measured;
}

/** Unix seconds on the gateway's clock. */
export function gatewayNow(): number {
  return (Date.now() + offsetMs) / 1000;
}

interface Ticker {
  subscribe: (changed: () => void) => () => void;
  read: () => number;
}

const tickers = new Map<number, Ticker>();

/** The gateway's time in seconds, which renders again every `everyS` seconds while the page is visible. */
export function useNow(everyS = 1): number {
  const ticker = tickerOf(everyS);
  return useSyncExternalStore(ticker.subscribe, ticker.read, ticker.read);
}

function tickerOf(everyS: number): Ticker {
  const known = tickers.get(everyS);
  if (known) return known;
  const made = makeTicker(everyS);
  tickers.set(everyS, made);
  return made;
}

function makeTicker(everyS: number): Ticker {
  const listeners = new Set<() => void>();
  let timer: ReturnType<typeof setInterval> | undefined;
  let now = gatewayNow();
  const tick = () => {
    if (document.visibilityState === 'hidden') return;
    now = gatewayNow();
    for (const listener of listeners) listener();
  };
  return {
    subscribe(changed) {
      if (listeners.size === 0) {
        now = gatewayNow();
        timer = setInterval(tick, everyS * 1000);
        document.addEventListener('visibilitychange', tick);
      }
      listeners.add(changed);
      return () => {
        listeners.delete(changed);
        if (listeners.size > 0) return;
        clearInterval(timer);
        document.removeEventListener('visibilitychange', tick);
      };
    },
    read: () => now,
  };
}
