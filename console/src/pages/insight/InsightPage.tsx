import { useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';

import { topQuery, type GroupBy, type TopItem } from '../../api/insight';
import { formatCount, formatPart } from '../../format/number';
import { formatDuration } from '../../format/time';
import { Page } from '../../shell/Page';
import { Foreign } from '../../ui/Foreign';
import { Empty, Failure, Skeleton } from '../../ui/States';
import { Table } from '../../ui/Table';
import { Segmented } from '../../ui/Tabs';
import { Age } from '../../ui/Time';
import { ToolName } from '../../ui/ToolName';
import { words } from '../../words';
import { insightWords } from '../../words-insight';

const RANGES = { '1h': 3600, '24h': 86_400, '7d': 604_800, '30d': 2_592_000 } as const;
type Range = keyof typeof RANGES;

/** What was called in a window of time, how long it took, and what failed. */
export default function InsightPage() {
  const { range = '24h', by = 'tool' } = useSearch({ from: '/insight' });
  const navigate = useNavigate({ from: '/insight' });
  const top = useQuery(topQuery(by, RANGES[range]));
  return (
    <Page
      title={words.shell.pages.insight}
      note={insightWords.byCalls(insightWords.ranges[range])}
      actions={
        <Segmented<Range>
          label={insightWords.range}
          value={range}
          items={(Object.keys(RANGES) as Range[]).map((value) => ({ value, label: insightWords.ranges[value] }))}
          onChange={(next) => void navigate({ search: (now) => ({ ...now, range: next }) })}
        />
      }
    >
      <Segmented<GroupBy>
        label={insightWords.byLabel}
        value={by}
        items={(['tool', 'source', 'user', 'code'] as const).map((value) => ({ value, label: insightWords.by[value] }))}
        onChange={(next) => void navigate({ search: (now) => ({ ...now, by: next }) })}
      />
      {top.isPending && <Skeleton />}
      {top.error && <Failure error={top.error} onRetry={() => void top.refetch()} />}
      {top.data?.items.length === 0 && <Empty title={insightWords.empty} />}
      {top.data && top.data.items.length > 0 && <TopTable items={top.data.items} by={by} />}
    </Page>
  );
}

function TopTable({ items, by }: { items: TopItem[]; by: GroupBy }) {
  return (
    <Table
      label={insightWords.by[by]}
      rows={items}
      keyOf={(item) => item.key}
      columns={[
        { key: 'key', title: insightWords.key[by], cell: ({ key }) => (by === 'tool' ? <ToolName name={key} /> : <Foreign text={key} />) },
        { key: 'calls', title: insightWords.calls, right: true, cell: ({ calls }) => formatCount(calls) },
        { key: 'failed', title: insightWords.failed, right: true, cell: ({ calls, failed }) => formatPart(calls === 0 ? 0 : failed / calls) },
        { key: 'p50', title: insightWords.p50, right: true, wide: true, cell: ({ p50 }) => (p50 === null ? '–' : formatDuration(p50)) },
        { key: 'p95', title: insightWords.p95, right: true, cell: ({ p95 }) => (p95 === null ? '–' : formatDuration(p95)) },
        { key: 'last', title: insightWords.last, right: true, wide: true, cell: ({ last_at }) => <Age at={last_at} ago /> },
      ]}
    />
  );
}
