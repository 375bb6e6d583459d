/** What each event changes in the cache, so that pages need not ask again. */

import type { QueryClient } from '@tanstack/react-query';

import { keys } from '../api/queries';
import type { Card, Event, Run } from '../api/types';
import { rememberRecent } from './recent';
import { textOf } from './events';

const ASKED = new Set(['APPROVAL_REQUESTED', 'CALL_PAUSED']);
const ANSWERED = new Set(['APPROVAL_GRANTED', 'APPROVAL_DENIED', 'CALL_RESUMED', 'QUESTION_EXPIRED']);
const SOURCES = new Set(['SOURCE_UP', 'SOURCE_DOWN', 'BREAKER_OPENED', 'BREAKER_CLOSED', 'CATALOG_CHANGED', 'CONFIG_APPLIED']);
const TOOLS = new Set(['CATALOG_CHANGED', 'CONFIG_APPLIED', 'SOURCE_UP', 'DEFINITION_CHANGED']);
const ENDED = new Set(['TOOL_CALL_COMPLETED', 'TOOL_CALL_FAILED']);
const CALLS = new Set(['TOOL_CALL_STARTED', ...ENDED, ...ASKED, ...ANSWERED]);
const FED_BY_EVENTS = [keys.cards, keys.runs, keys.anyRun, keys.sources, keys.tools, keys.accounts, keys.insight, keys.sessions, keys.callerKeys];
const CATALOG_WAIT_MS = 1000;
const RUN_WAIT_MS = 1000;
const FIGURES_WAIT_MS = 3000;

/** Apply events to the cache in their order. Each change is by id, so an event that comes twice does no harm. */
export function applyEvents(cache: QueryClient, events: Event[]): void {
  for (const event of events) applyEvent(cache, event);
  rememberRecent(events);
  const types = new Set(events.map((event) => event.type));
  const any = (wanted: Set<string>) => [...types].some((type) => wanted.has(type));
  if (any(SOURCES)) void cache.invalidateQueries({ queryKey: keys.sources });
  if (any(TOOLS)) invalidateSoon(cache);
  if ([...types].some((type) => CALLS.has(type))) invalidateFigures(cache);
  if ([...types].some((type) => type.startsWith('ACCOUNT_'))) void cache.invalidateQueries({ queryKey: keys.accounts });
  if ([...types].some((type) => type.startsWith('SESSION_'))) void cache.invalidateQueries({ queryKey: keys.sessions });
  if ([...types].some((type) => type.startsWith('CALLER_KEY_'))) void cache.invalidateQueries({ queryKey: keys.callerKeys });
}

/** What events keep fresh is asked for again, because some of them may have been missed. */
export function applyGap(cache: QueryClient): void {
  for (const queryKey of FED_BY_EVENTS) void cache.invalidateQueries({ queryKey });
}

function applyEvent(cache: QueryClient, event: Event): void {
  if (ASKED.has(event.type) && event.card) addCard(cache, event.card);
  if (ANSWERED.has(event.type)) closeCard(cache, textOf(event, 'pending_id'));
  if (event.run_id) applyToRun(cache, event);
}

function addCard(cache: QueryClient, card: Card): void {
  if (card.status !== 'open') return;
  cache.setQueryData<Card>(keys.card(card.id), (known) => known ?? card);
  cache.setQueryData<Card[]>(keys.openCards, (cards) => cards && [...cards.filter((one) => one.id !== card.id), card]);
}

function closeCard(cache: QueryClient, id: string): void {
  if (!id) return;
  cache.setQueryData<Card[]>(keys.openCards, (cards) => cards?.filter((one) => one.id !== id));
  void cache.invalidateQueries({ queryKey: keys.card(id) });
  void cache.invalidateQueries({ queryKey: keys.closedCards });
}

function applyToRun(cache: QueryClient, event: Event): void {
  cache.setQueryData<Run>(keys.run(event.run_id), (run) => {
    if (!run?.log || run.log.some((one) => one.id === event.id)) return run;
    return { ...run, log: [...run.log, event].sort((a, b) => a.seq - b.seq), updated_at: event.at };
  });
  if (CALLS.has(event.type)) invalidateRun(cache, event.run_id);
}

const timers = new Map<string, ReturnType<typeof setTimeout>>();

/** A source that comes up changes the catalog tool by tool; the list is asked for once, a second later. */
function invalidateSoon(cache: QueryClient): void {
  later('tools', CATALOG_WAIT_MS, () => void cache.invalidateQueries({ queryKey: keys.tools }));
}

/** Calls change the status of their run, which its log alone does not tell; it is asked for at most once a second. */
function invalidateRun(cache: QueryClient, id: string): void {
  later(`run ${id}`, RUN_WAIT_MS, () => void cache.invalidateQueries({ queryKey: keys.run(id) }));
}

/** Calls change the list of runs and the figures; both are asked for at most every three seconds. */
function invalidateFigures(cache: QueryClient): void {
  later('figures', FIGURES_WAIT_MS, () => {
    void cache.invalidateQueries({ queryKey: keys.runs });
    void cache.invalidateQueries({ queryKey: keys.insight });
  });
}

function later(name: string, waitMs: number, action: () => void): void {
  if (timers.has(name)) return;
  const timer = setTimeout(() => {
    timers.delete(name);
    action();
  }, waitMs);
  timers.set(name, timer);
}
