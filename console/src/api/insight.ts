/** What the page Insight fetches. */

import { keepPreviousData, queryOptions } from '@tanstack/react-query';

import { gatewayNow } from '../format/clock';
import { limitsOf, type Window } from './windows';
import { api, body } from './client';
import { keys } from './queries';
import type { components } from './schema';

export type Series = components['schemas']['Series'];
export type TopItem = components['schemas']['Top']['items'][number];
export type GroupBy = 'tool' | 'source' | 'user' | 'code';

/** Only the calls of one tool or of one source. */
export interface CallFilter {
  tool?: string;
  source?: string;
}

const METRICS = 'calls,failed,p50,p95,p99,asked,answered,denied,expired,answer_p50,answer_p90';
const MOST_KEYS = 100;

/** All metrics of the calls in a window. */
export const seriesQuery = (window: Window, filter: CallFilter) =>
  queryOptions({
    queryKey: [...keys.insight, 'series', window, filter],
    queryFn: ({ signal }) => {
      const query = { metric: METRICS, ...propertyOf(filter), ...limitsOf(window, gatewayNow()) };
      return body(api.GET('/api/v1/insight/series', { params: { query }, signal }));
    },
    placeholderData: keepPreviousData,
  });

/** The failures in a window, one series for each error code, or with a filter for each tool and error code. */
export const errorsQuery = (window: Window, filter: CallFilter) =>
  queryOptions({
    queryKey: [...keys.insight, 'errors', window, filter],
    queryFn: ({ signal }) => {
      const by = filter.tool === undefined && filter.source === undefined ? ('code' as const) : ('failure' as const);
      const query = { metric: 'failed', by, limit: MOST_KEYS, ...limitsOf(window, gatewayNow()) };
      return body(api.GET('/api/v1/insight/series', { params: { query }, signal }));
    },
    placeholderData: keepPreviousData,
  });

/** The tools, sources, users or error codes with the most calls of a window. */
export const topQuery = (by: GroupBy, window: Window) =>
  queryOptions({
    queryKey: [...keys.insight, 'top', by, window],
    queryFn: ({ signal }) => {
      const { since, until } = limitsOf(window, gatewayNow());
      const query = { by, since, ...(until !== undefined && { until }), limit: MOST_KEYS };
      return body(api.GET('/api/v1/insight/top', { params: { query }, signal }));
    },
    placeholderData: keepPreviousData,
  });

function propertyOf({ tool, source }: CallFilter): { by: 'none' | 'tool' | 'source'; key?: string } {
  if (tool !== undefined) return { by: 'tool', key: tool };
  return source === undefined ? { by: 'none' } : { by: 'source', key: source };
}
