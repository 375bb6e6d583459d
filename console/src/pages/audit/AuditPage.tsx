import { useInfiniteQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useCallback, useMemo } from 'react';

import { eventPagesQuery, type EventFilters } from '../../api/audit';
import type { Event } from '../../api/types';
import { useRecentEvents } from '../../live/recent';
import { Page } from '../../shell/Page';
import { Button } from '../../ui/Button';
import { List } from '../../ui/List';
import { Empty, Failure, Skeleton } from '../../ui/States';
import { auditWords, words } from '../../words';
import { AuditActions } from './AuditActions';
import { AuditFilters } from './AuditFilters';
import { AuditRow } from './AuditRow';
import styles from './audit.module.css';
import { matches } from './filters';

const ROW_HEIGHT = 33;

/** All events of the tenant that the caller may see, newest first; the filters and the open event are in the address. */
export default function AuditPage() {
  const { event: opened, ...filters } = useSearch({ from: '/audit' });
  const navigate = useNavigate({ from: '/audit' });
  const pages = useInfiniteQuery(eventPagesQuery(filters));
  const events = useMemo(() => pages.data?.pages.flatMap((page) => page.items) ?? [], [pages.data]);
  const newer = useNewer(events, filters, pages.isSuccess);
  const change = useCallback(
    (next: object) => void navigate({ search: (now) => cleaned({ ...now, ...next }), replace: true }),
    [navigate],
  );
  const { hasNextPage, isFetchingNextPage, fetchNextPage } = pages;
  const fetchMore = useCallback(() => {
    if (hasNextPage && !isFetchingNextPage) void fetchNextPage();
  }, [hasNextPage, isFetchingNextPage, fetchNextPage]);
  const filtersId = JSON.stringify(filters);
  const isFiltered = Object.keys(filters).length > 0;
  return (
    <Page title={words.shell.pages.audit} actions={<AuditActions filters={filters} />}>
      <div className={styles.page}>
        <AuditFilters filters={filters} onChange={change} />
        {pages.isPending && <Skeleton rows={14} height={ROW_HEIGHT} />}
        {pages.error && events.length === 0 && <Failure error={pages.error} onRetry={() => void pages.refetch()} />}
        {pages.isSuccess && events.length === 0 && <NoEvents isFiltered={isFiltered} onClear={() => change(NO_FILTERS)} />}
        {events.length > 0 && (
          <div className={styles.events}>
            {newer > 0 && (
              <button type="button" className={styles.newer} onClick={() => void pages.refetch()}>
                {auditWords.newer(newer)}
              </button>
            )}
            <Head />
            <List
              key={filtersId}
              scrollId={filtersId}
              items={events}
              label={auditWords.list}
              keyOf={(event) => String(event.id)}
              rowHeight={ROW_HEIGHT}
              onEnd={fetchMore}
              render={(event) => (
                <AuditRow
                  event={event}
                  isOpen={event.id === opened}
                  onToggle={() => change({ event: event.id === opened ? undefined : event.id })}
                  onFilter={(only) => change(only)}
                />
              )}
            />
          </div>
        )}
      </div>
    </Page>
  );
}

const NO_FILTERS: Record<keyof EventFilters, undefined> = {
  type: undefined,
  tool: undefined,
  user: undefined,
  run: undefined,
  since: undefined,
  until: undefined,
};

function Head() {
  const { time, type, what, user } = auditWords.columns;
  return (
    <div className={styles.head} aria-hidden>
      <span>{time}</span>
      <span>{type}</span>
      <span>{what}</span>
      <span className={styles.user}>{user}</span>
    </div>
  );
}

/** How many events of the stream match and are not in the list yet. */
function useNewer(events: readonly Event[], filters: EventFilters, isLoaded: boolean): number {
  const recent = useRecentEvents();
  const newest = events[0]?.id ?? 0;
  return isLoaded ? recent.filter((event) => event.id > newest && matches(event, filters)).length : 0;
}

function NoEvents({ isFiltered, onClear }: { isFiltered: boolean; onClear: () => void }) {
  if (!isFiltered) return <Empty title={auditWords.empty}>{auditWords.emptyHint}</Empty>;
  return <Empty title={auditWords.emptyFilter} actions={<Button onClick={onClear}>{auditWords.clear}</Button>} />;
}

function cleaned<Search extends object>(search: Search): Search {
  return Object.fromEntries(Object.entries(search).filter(([, value]) => value !== undefined && value !== '')) as Search;
}
