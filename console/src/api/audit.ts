/** What the page Audit fetches. */

import { infiniteQueryOptions, keepPreviousData, queryOptions } from '@tanstack/react-query';

import { requestTo, send } from './client';
import type { Event } from './types';

export interface EventFilters {
  /** Types separated by commas; `*` matches any characters. */
  type?: string;
  /** A name; `*` matches any characters. */
  tool?: string;
  user?: string;
  run?: string;
  since?: number;
  until?: number;
}

export interface EventPage {
  items: Event[];
  next: number | null;
}

const PAGE = 200;
const LATEST = 20;
const MOST_FAILURES = 100;
// Without the requests, starts and progress of calls, which can be thousands a minute, and without logs.
const NOTABLE = [
  'TOOL_CALL_COMPLETED', 'TOOL_CALL_FAILED', 'APPROVAL_*', 'CALL_*', 'QUESTION_*', 'FALLBACK_*', 'BREAKER_*', 'CATALOG_*',
  'DEFINITION_*', 'SOURCE_UP', 'SOURCE_DOWN', 'CONFIG_*', 'DATABASE_*', 'ACCOUNT_*', 'CALLER_KEY_*', 'SESSION_*', 'TICKET_*',
  'TASK_*', 'MESSAGE_*', 'TURN_*',
];

/** The events that match, the newest first, page by page. */
export const eventPagesQuery = (filters: EventFilters) =>
  infiniteQueryOptions({
    queryKey: ['audit', filters],
    queryFn: ({ pageParam, signal }) => listEvents(filters, PAGE, pageParam, signal),
    initialPageParam: undefined as number | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    structuralSharing: false, // Pages do not change; comparing all of them for each new one takes long.
    placeholderData: keepPreviousData,
  });

/** The last notable events of the log; later ones arrive automatically. */
export const latestEventsQuery = queryOptions({
  queryKey: ['audit', 'latest'],
  queryFn: async ({ signal }) => (await listEvents({ type: NOTABLE.join(',') }, LATEST, undefined, signal)).items,
  staleTime: Infinity,
});

/** The last calls that failed since a time, the newest first. */
export async function lastFailures(since: number, signal: AbortSignal): Promise<Event[]> {
  return (await listEvents({ type: 'TOOL_CALL_FAILED', since }, MOST_FAILURES, undefined, signal)).items;
}

async function listEvents(filters: EventFilters, limit: number, before: number | undefined, signal: AbortSignal): Promise<EventPage> {
  const query = parametersOf(filters);
  query.set('limit', String(limit));
  if (before !== undefined) query.set('before', String(before));
  const request = requestTo(`/api/v1/events?${query.toString()}`, { headers: { Accept: 'application/json' }, signal });
  return (await (await send(request)).json()) as EventPage;
}

/** The events that match with their hashes, oldest first, as a file. */
export async function exportEvents(filters: EventFilters, format: 'jsonl' | 'csv'): Promise<Blob> {
  const query = parametersOf(filters);
  query.set('format', format);
  return (await send(requestTo(`/api/v1/audit?${query.toString()}`))).blob();
}

function parametersOf(filters: EventFilters): URLSearchParams {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(filters)) if (value !== undefined) query.set(name, String(value));
  return query;
}
