/** What the pages of tools fetch. */

import { infiniteQueryOptions, keepPreviousData, queryOptions } from '@tanstack/react-query';

import { api, body, requestTo, send } from './client';
import { keys } from './queries';
import type { components } from './schema';

export type ToolSummary = components['schemas']['ToolSummary'];
type Explanation = components['schemas']['Explanation'];

export interface ToolFilters {
  q?: string;
  source?: string;
  tag?: string;
  effect?: string;
  verdict?: string;
}

export interface ToolPage {
  items: ToolSummary[];
  next: string | null;
  total: number;
  took_ms: number;
  facets: Partial<Record<'source' | 'tag' | 'side_effects' | 'verdict', Record<string, number>>>;
}

const PAGE = 100;

/** The tools that match, in pages of 100, with the number of tools by source, tag, effect and verdict. */
export const toolListQuery = (filters: ToolFilters) =>
  infiniteQueryOptions({
    queryKey: [...keys.tools, filters],
    queryFn: async ({ pageParam, signal }) => {
      const { effect, verdict, ...rest } = filters;
      const query = {
        ...rest,
        ...(effect !== undefined && { side_effects: effect as never }),
        ...(verdict !== undefined && { verdict: verdict as never }),
        ...(filters.q === undefined && { sort: 'name' as const }),
        ...(pageParam !== undefined && { cursor: pageParam }),
        view: 'summary' as const,
        limit: PAGE,
        facets: 'source,tag,side_effects,verdict',
      };
      return (await body(api.GET('/api/v1/tools', { params: { query }, signal }))) as ToolPage;
    },
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    structuralSharing: false, // Pages do not change; comparing all of them for each new one takes long.
    placeholderData: keepPreviousData,
  });

/** What the policy decides about a call with these arguments. Nothing is run or recorded. */
export const explainQuery = (tool: string, argumentsText: string, enabled: boolean) =>
  queryOptions({
    queryKey: ['explain', tool, argumentsText],
    queryFn: async ({ signal }) => {
      const request = requestTo('/api/v1/policy/explain', {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: `{"tool":${JSON.stringify(tool)},"arguments":${argumentsText}}`,
        signal,
      });
      return (await (await send(request)).json()) as Explanation;
    },
    enabled,
    retry: false,
    placeholderData: keepPreviousData,
  });
