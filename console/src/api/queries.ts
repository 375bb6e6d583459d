/** What pages fetch, with the keys by which events find it in the cache. */

import { queryOptions } from '@tanstack/react-query';

import { gatewayNow } from '../format/clock';
import { isLive, listening } from '../live/live';
import { lastFailures } from './audit';
import { api, body } from './client';
import type { Card, Event } from './types';

const POLL_MS = 10_000;
/** Fresh as long as events arrive; asked for again every ten seconds while they do not. */
const KEPT_BY_EVENTS = {
  staleTime: Infinity,
  refetchInterval: () => (isLive() ? false : POLL_MS),
} as const;
const PAGE = 100;
const LIKE_IT = 20;
const MOST_EXAMPLES = 100;

export const keys = {
  cards: ['pending'],
  openCards: ['pending', 'open'],
  card: (id: string) => ['pending', 'card', id],
  closedCards: ['pending', 'closed'],
  runs: ['runs'],
  anyRun: ['run'],
  run: (id: string) => ['run', id],
  tools: ['tools'],
  tool: (name: string) => ['tool', name],
  sources: ['sources'],
  source: (name: string) => ['source', name],
  accounts: ['accounts'],
  stats: ['stats'],
  insight: ['insight'],
  policy: ['policy'],
  about: ['about'],
  callerKeys: ['keys'],
  sessions: ['sessions'],
} as const;

/** All open questions that the caller sees, by page after page. */
export const openCardsQuery = queryOptions({
  queryKey: keys.openCards,
  queryFn: async ({ signal }) => {
    await listening();
    return listCards('open', signal);
  },
  ...KEPT_BY_EVENTS,
});

export const cardQuery = (id: string) =>
  queryOptions({
    queryKey: keys.card(id),
    queryFn: ({ signal }) =>
      body(api.GET('/api/v1/pending/{pending_id}', { params: { path: { pending_id: id } }, signal })),
    ...KEPT_BY_EVENTS,
  });

const CLOSED = ['claimed', 'answered', 'denied', 'expired', 'cancelled'] as const;

/** The newest cards of each status that is not open. */
export const closedCardsQuery = queryOptions({
  queryKey: keys.closedCards,
  queryFn: async ({ signal }) => {
    const pages = await Promise.all(
      CLOSED.map((status) => body(api.GET('/api/v1/pending', { params: { query: { status, limit: PAGE } }, signal }))),
    );
    return pages.flatMap((page) => page.items);
  },
  ...KEPT_BY_EVENTS,
});

/** The newest cards of a tool, whatever their status. */
export const cardsOfToolQuery = (tool: string) =>
  queryOptions({
    queryKey: [...keys.closedCards, tool],
    queryFn: async ({ signal }) => {
      const query = { status: 'all', tool, view: 'summary', limit: LIKE_IT } as const;
      return (await body(api.GET('/api/v1/pending', { params: { query }, signal }))).items;
    },
    ...KEPT_BY_EVENTS,
  });

export const sourcesQuery = queryOptions({
  queryKey: keys.sources,
  queryFn: async ({ signal }) => {
    await listening();
    return body(api.GET('/api/v1/sources', { signal }));
  },
  ...KEPT_BY_EVENTS,
});

export const accountsQuery = queryOptions({
  queryKey: keys.accounts,
  queryFn: ({ signal }) => body(api.GET('/api/v1/accounts', { signal })),
  ...KEPT_BY_EVENTS,
});

export const toolQuery = (name: string) =>
  queryOptions({
    queryKey: keys.tool(name),
    queryFn: ({ signal }) => body(api.GET('/api/v1/tools/{name}', { params: { path: { name } }, signal })),
  });

export const runQuery = (id: string) =>
  queryOptions({
    queryKey: keys.run(id),
    queryFn: ({ signal }) => body(api.GET('/api/v1/runs/{run_id}', { params: { path: { run_id: id } }, signal })),
    ...KEPT_BY_EVENTS,
  });

/** The newest runs, and all that are running, however old they are. */
export const runsQuery = queryOptions({
  queryKey: keys.runs,
  queryFn: async ({ signal }) => {
    await listening();
    const [newest, running] = await Promise.all([
      body(api.GET('/api/v1/runs', { params: { query: { limit: PAGE } }, signal })),
      body(api.GET('/api/v1/runs', { params: { query: { status: 'running', limit: PAGE } }, signal })),
    ]);
    const known = new Set(newest.items.map((run) => run.run_id));
    return { items: [...newest.items, ...running.items.filter((run) => !known.has(run.run_id))] };
  },
});

export const statsQuery = queryOptions({
  queryKey: keys.stats,
  queryFn: ({ signal }) => body(api.GET('/api/v1/stats', { signal })),
});

/** The tools that fit a text best. */
export const toolSearchQuery = (text: string) =>
  queryOptions({
    queryKey: [...keys.tools, 'search', text],
    queryFn: async ({ signal }) => {
      const query = { q: text, view: 'summary', limit: 8 } as const;
      return (await body(api.GET('/api/v1/tools', { params: { query }, signal }))).items;
    },
  });

/** The name of a tool to begin with: one without effects, if there is one. */
export const exampleToolQuery = queryOptions({
  queryKey: [...keys.tools, 'example'],
  queryFn: async ({ signal }) => {
    const query = { view: 'summary', limit: MOST_EXAMPLES, verdict: 'allow' } as const;
    const { items } = await body(api.GET('/api/v1/tools', { params: { query }, signal }));
    const own = items.filter((tool) => tool.source !== '');
    const [first] = [...own.filter(isHarmless), ...items.filter(isHarmless), ...items];
    return first?.name ?? null;
  },
});

function isHarmless({ side_effects: effects }: { side_effects: string }): boolean {
  return effects === 'pure' || effects === 'read';
}

/** How many tools the caller sees. */
export const toolTotalQuery = queryOptions({
  queryKey: [...keys.tools, 'total'],
  queryFn: async ({ signal }) =>
    (await body(api.GET('/api/v1/tools', { params: { query: { view: 'summary', limit: 1 } }, signal }))).total,
  staleTime: Infinity,
});

export const callerKeysQuery = queryOptions({
  queryKey: keys.callerKeys,
  queryFn: async ({ signal }) => (await body(api.GET('/api/v1/keys', { signal }))).items,
});

export const sessionsQuery = queryOptions({
  queryKey: keys.sessions,
  queryFn: async ({ signal }) => (await body(api.GET('/api/v1/sessions', { signal }))).items,
});

export const policyQuery = queryOptions({
  queryKey: keys.policy,
  queryFn: ({ signal }) => body(api.GET('/api/v1/policy', { signal })),
});

export const aboutQuery = queryOptions({
  queryKey: keys.about,
  queryFn: ({ signal }) => body(api.GET('/api/v1/about', { signal })),
});

/** How many steps a window has, and how long they are. */
export const WINDOWS = { '1h': { seconds: 3600, step: 60 }, '24h': { seconds: 86_400, step: 900 } } as const;
export type WindowName = keyof typeof WINDOWS;

/** Calls, failures and questions over a window, one value a step. */
export const pulseQuery = (window: WindowName) =>
  queryOptions({
    queryKey: [...keys.insight, 'pulse', window],
    queryFn: ({ signal }) => {
      const { seconds, step } = WINDOWS[window];
      const since = gatewayNow() - seconds;
      return body(api.GET('/api/v1/insight/series', { params: { query: { metric: 'calls,failed,asked', since, step } }, signal }));
    },
  });

/** The 95th percentile of the durations of the current hour. */
export const p95Query = queryOptions({
  queryKey: [...keys.insight, 'p95'],
  queryFn: ({ signal }) =>
    body(
      api.GET('/api/v1/insight/series', {
        params: { query: { metric: 'p95', since: gatewayNow() - 3600, step: 3600 } },
        signal,
      }),
    ),
});

/** What failed most in a window, by tool and error code. */
export const failuresQuery = (window: WindowName) =>
  queryOptions({
    queryKey: [...keys.insight, 'failures', window],
    queryFn: async ({ signal }) => {
      const { seconds } = WINDOWS[window];
      const since = gatewayNow() - seconds;
      const query = { by: 'failure', metric: 'failed', since, limit: 7 } as const;
      const [top, series, events] = await Promise.all([
        body(api.GET('/api/v1/insight/top', { params: { query }, signal })),
        body(api.GET('/api/v1/insight/series', { params: { query: { ...query, step: seconds / 12 } }, signal })),
        lastFailures(since, signal),
      ]);
      const items = top.items.filter((item) => item.failed > 0);
      const messageOf = (key: string) => events.find((event) => failureOf(event) === key)?.payload.error_message;
      return { top: items.map((item) => ({ ...item, message: messageOf(item.key) })), series: series.series };
    },
  });

/** The tool and the error code of a failed call, as the figures name them. */
function failureOf({ payload }: Event): string {
  return `${String(payload.tool_name)} ${String(payload.error_code)}`;
}

async function listCards(status: Card['status'], signal: AbortSignal): Promise<Card[]> {
  const cards: Card[] = [];
  let cursor: string | undefined;
  do {
    const page = await body(
      api.GET('/api/v1/pending', { params: { query: { status, limit: PAGE, ...(cursor ? { cursor } : {}) } }, signal }),
    );
    cards.push(...page.items);
    cursor = page.next ?? undefined;
  } while (cursor);
  return cards;
}
