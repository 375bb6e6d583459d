import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useEffect, useMemo, useRef } from 'react';

import { exampleToolQuery } from '../../api/queries';
import { runPagesQuery, type RunFilters } from '../../api/runs';
import { gatewayNow } from '../../format/clock';
import { useRecentEvents } from '../../live/recent';
import { Page } from '../../shell/Page';
import { Button } from '../../ui/Button';
import { FilterChip } from '../../ui/Chip';
import { CopyBlock } from '../../ui/Copy';
import { Select } from '../../ui/Select';
import { Empty, Failure, Skeleton } from '../../ui/States';
import { TextFilter } from '../../ui/TextFilter';
import { runWords, words } from '../../words';
import { RunTable } from './RunTable';
import styles from './RunsPage.module.css';

const WINDOWS: Record<string, number> = { '1h': 3600, '24h': 86_400, '7d': 604_800 };

/** All runs, newest first, with filters in the address. */
export default function RunsPage() {
  const navigate = useNavigate();
  const search: RunFilters = useSearch({ strict: false });
  const filters = pick(search);
  const query = useInfiniteQuery(runPagesQuery(filters));
  const runs = useMemo(() => liveFirst(query.data?.pages.flatMap((page) => page.items) ?? []), [query.data]);
  const total = query.data?.pages[0]?.total ?? undefined;
  const filtered = Object.keys(filters).length > 0;
  const change = (next: RunFilters) => void navigate({ to: '.', search: (old) => cleaned({ ...old, ...next }), replace: true });
  useRefetchAfterEvents(() => void query.refetch());
  return (
    <Page title={words.shell.pages.runs} note={total === undefined ? undefined : total.toLocaleString()}>
      <Filters filters={filters} onChange={change} />
      {query.isPending && <Skeleton rows={12} />}
      {query.error && runs.length === 0 && <Failure error={query.error} onRetry={() => void query.refetch()} />}
      {query.isSuccess && runs.length === 0 && (filtered ? <NoMatch onClear={() => change(EMPTY)} /> : <NoRuns />)}
      {runs.length > 0 && <RunTable runs={runs} label={words.shell.pages.runs} />}
      {query.hasNextPage && (
        <div className={styles.more}>
          <Button disabled={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>
            {words.more}
          </Button>
        </div>
      )}
    </Page>
  );
}

// What the gateway filters by; a denied or cancelled call is a failed run.
const STATUSES = ['running', 'paused', 'completed', 'failed'] as const;
const EMPTY: RunFilters = { status: '', tool: '', source: '', user: '', q: '', since: undefined, until: undefined };

function Filters({ filters, onChange }: { filters: RunFilters; onChange: (next: RunFilters) => void }) {
  const statuses = STATUSES.map((value) => ({ value, label: runWords.statuses[value] ?? value }));
  const window = Object.entries(WINDOWS).find(([, seconds]) => filters.since !== undefined && Math.abs(gatewayNow() - filters.since - seconds) < seconds / 2)?.[0] ?? '';
  return (
    <div className={styles.filters}>
      <Select
        look="chip"
        label={runWords.anyStatus}
        value={filters.status ?? ''}
        onChange={(status) => onChange({ status })}
        options={[{ value: '', label: filters.status ? runWords.any : runWords.anyStatus }, ...statuses]}
      />
      <Select
        look="chip"
        label={runWords.time}
        value={window}
        onChange={(next) => onChange({ since: next === '' ? undefined : Math.floor(gatewayNow() - (WINDOWS[next] ?? 0)), until: undefined })}
        options={Object.entries(runWords.windows).map(([value, label]) => ({ value, label }))}
      />
      <TextFilter label={runWords.search} value={filters.q ?? ''} onChange={(q) => onChange({ q })} />
      <TextFilter label={runWords.toolFilter} value={filters.tool ?? ''} onChange={(tool) => onChange({ tool })} />
      <TextFilter label={runWords.userFilter} value={filters.user ?? ''} onChange={(user) => onChange({ user })} />
      {filters.source !== undefined && (
        <FilterChip on onClick={() => onChange({ source: '' })}>
          {runWords.source}: {filters.source} ×
        </FilterChip>
      )}
    </div>
  );
}

function NoMatch({ onClear }: { onClear: () => void }) {
  return <Empty title={runWords.emptyFilter} actions={<Button onClick={onClear}>{runWords.clear}</Button>} />;
}

function NoRuns() {
  const tool = useQuery(exampleToolQuery).data;
  if (!tool) return <Empty title={runWords.empty} />;
  return (
    <Empty title={runWords.empty}>
      {runWords.emptyHint}
      <CopyBlock text={`toolpost tools call ${tool}`} />
    </Empty>
  );
}

const REFETCHED_AFTER_MS = 1500;

/** Fetches the list again a moment after the events of a run, at most once in a second and a half. */
function useRefetchAfterEvents(refetch: () => void): void {
  const newest = useRecentEvents()[0]?.id;
  const seen = useRef({ id: newest, refetch });
  useEffect(() => {
    seen.current.refetch = refetch;
  });
  useEffect(() => {
    if (newest === undefined || newest === seen.current.id) return undefined;
    const timer = setTimeout(() => {
      seen.current.id = newest;
      seen.current.refetch();
    }, REFETCHED_AFTER_MS);
    return () => clearTimeout(timer);
  }, [newest]);
}

/** Runs that have not ended, then the others. */
function liveFirst<Row extends { status: string }>(runs: Row[]): Row[] {
  const live = (run: Row) => run.status === 'running' || run.status === 'paused';
  return [...runs.filter(live), ...runs.filter((run) => !live(run))];
}

function pick({ status, tool, source, user, since, until, q }: RunFilters): RunFilters {
  return cleaned({ status, tool, source, user, since, until, q });
}

function cleaned<Search extends object>(search: Search): Search {
  return Object.fromEntries(Object.entries(search).filter(([, value]) => value !== undefined && value !== '')) as Search;
}
