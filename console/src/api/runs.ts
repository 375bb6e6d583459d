/** What the pages of runs fetch. */

import { infiniteQueryOptions, keepPreviousData, queryOptions } from '@tanstack/react-query';

import { api, body, requestTo, send } from './client';
import { keys } from './queries';
import type { Outcome, OutcomeNotKept, Run } from './types';


export interface RunFilters {
  status?: string;
  tool?: string;
  source?: string;
  user?: string;
  since?: number;
  until?: number;
  q?: string;
}

export interface RunPage {
  items: Run[];
  next: string | null;
  /** Null while it is too expensive to count. */
  total: number | null;
}

const PAGE = 100;

/** The newest runs that match. */
export const runListQuery = (filters: RunFilters, limit: number) =>
  queryOptions({
    queryKey: [...keys.runs, 'last', filters, limit],
    queryFn: ({ signal }) => listRuns(filters, limit, undefined, signal),
  });

/** All runs that match, page by page. */
export const runPagesQuery = (filters: RunFilters) =>
  infiniteQueryOptions({
    queryKey: [...keys.runs, 'pages', filters],
    queryFn: ({ pageParam, signal }) => listRuns(filters, PAGE, pageParam, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    structuralSharing: false, // Pages do not change; comparing all of them for each new one takes long.
    placeholderData: keepPreviousData,
  });

async function listRuns(filters: RunFilters, limit: number, cursor: string | undefined, signal: AbortSignal): Promise<RunPage> {
  const query = new URLSearchParams({ limit: String(limit) });
  for (const [name, value] of Object.entries(filters)) if (value !== undefined) query.set(name, String(value));
  if (cursor === undefined) query.set('total', 'yes');
  else query.set('cursor', cursor);
  const response = await send(requestTo(`/api/v1/runs?${query.toString()}`, { signal }));
  return (await response.json()) as RunPage;
}

/** The outcome of a run that has ended, where it is stored. */
export const outcomeQuery = (id: string) =>
  queryOptions({
    queryKey: [...keys.run(id), 'outcome'],
    queryFn: async ({ signal }) => {
      const response = await send(requestTo(`/api/v1/runs/${encodeURIComponent(id)}/outcome`, { signal }));
      return (await response.json()) as Outcome | OutcomeNotKept;
    },
    staleTime: Infinity,
    retry: false,
  });

/** Whether the log of a run is as it was written: consecutive, and chained by hashes. */
export const verifyQuery = (id: string) =>
  queryOptions({
    queryKey: [...keys.run(id), 'verify'],
    queryFn: ({ signal }) => body(api.GET('/api/v1/runs/{run_id}/verify', { params: { path: { run_id: id } }, signal })),
    retry: false,
  });
