/** What the page Insight fetches. */

import { keepPreviousData, queryOptions } from '@tanstack/react-query';

import { api, body } from './client';
import { keys } from './queries';
import type { components } from './schema';

export type TopItem = components['schemas']['Top']['items'][number];
export type GroupBy = 'tool' | 'source' | 'user' | 'code';

/** The tools, sources, users or error codes with the most calls of the last `seconds`. */
export const topQuery = (by: GroupBy, seconds: number) =>
  queryOptions({
    queryKey: [...keys.insight, 'top', by, seconds],
    queryFn: ({ signal }) => {
      const query = { by, since: Date.now() / 1000 - seconds, limit: 100 };
      return body(api.GET('/api/v1/insight/top', { params: { query }, signal }));
    },
    placeholderData: keepPreviousData,
  });
