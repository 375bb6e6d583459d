/** What the page Insight fetches. */

import { keepPreviousData, queryOptions } from '@tanstack/react-query';

import { api, body } from './client';
import { keys } from './queries';
import type { components } from './schema';

export type TopItem = components['schemas']['Top']['items'][number];
export type Series = components['schemas']['Series'];
export type GroupBy = 'tool' | 'source' | 'user' | 'code';

/** A window of time, in Unix seconds. */
export interface Window {
  since: number;
  until: number;
}

export interface SeriesFilter {
  source?: string;
  tool?: string;
}

const METRICS = 'calls,failed,p50,p95,p99,asked,answered,denied,expired,answer_p50,answer_p90';
const MOST_CODES = 7;

/** The tools, sources, users or error codes with the most calls of a window. */
export const topQuery = (by: GroupBy, window: Window) =>
  queryOptions({
    queryKey: [...keys.insight, 'top', by, window],
    queryFn: ({ signal }) => body(api.GET('/api/v1/insight/top', { params: { query: { by, ...window, limit: 100 } }, signal })),
    placeholderData: keepPreviousData,
  });

/** All metrics of a window, `step` seconds a value; of one source or one tool where there is a filter. */
export const seriesQuery = (window: Window, step: number, { source, tool }: SeriesFilter) =>
  queryOptions({
    queryKey: [...keys.insight, 'series', window, step, source, tool],
    queryFn: ({ signal }) => {
      const filter = tool !== undefined ? { by: 'tool' as const, key: tool } : source !== undefined ? { by: 'source' as const, key: source } : {};
      return body(api.GET('/api/v1/insight/series', { params: { query: { ...window, step, metric: METRICS, ...filter } }, signal }));
    },
    placeholderData: keepPreviousData,
  });

/** The failures of a window by their error code, the most frequent ones. */
export const codesQuery = (window: Window, step: number) =>
  queryOptions({
    queryKey: [...keys.insight, 'codes', window, step],
    queryFn: ({ signal }) =>
      body(api.GET('/api/v1/insight/series', { params: { query: { ...window, step, metric: 'failed', by: 'code', limit: MOST_CODES } }, signal })),
    placeholderData: keepPreviousData,
  });
