import { useQuery } from '@tanstack/react-query';

import { saveBlob } from '../../api/artifacts';
import { topQuery, type GroupBy, type TopItem } from '../../api/insight';
import type { Window } from '../../api/windows';
import { formatCount, formatPart } from '../../format/number';
import { formatDuration, isoTime } from '../../format/time';
import { Button } from '../../ui/Button';
import { Foreign } from '../../ui/Foreign';
import { DownloadIcon } from '../../ui/icons';
import { Empty, Failure, Skeleton } from '../../ui/States';
import { Table, type Column } from '../../ui/Table';
import { Segmented } from '../../ui/Tabs';
import { Age } from '../../ui/Time';
import { ToolName } from '../../ui/ToolName';
import { toCsv } from '../../views/csv';
import { insightWords as words } from '../../words';
import styles from './insight.module.css';

const GROUPS = ['tool', 'source', 'user', 'code'] as const;
const MANY_FAILED = 0.02;

interface TopCardProps {
  by: GroupBy;
  window: Window;
  range: string;
  /** The tool or source that the plots show alone. */
  selected: string | undefined;
  onGroup: (by: GroupBy) => void;
  onSelect: (key: string) => void;
}

/** What was called most in the window, by tool, source, user or error code. */
export function TopCard({ by, window, range, selected, onGroup, onSelect }: TopCardProps) {
  const top = useQuery(topQuery(by, window));
  const { items = [], total = 0 } = top.data ?? {};
  const notes = [by === 'code' ? words.byFailures(range) : words.byCalls(range)];
  if (items.length < total) notes.push(words.shownOf(items.length, total));
  return (
    <section className={`${styles.card ?? ''} ${styles.top ?? ''}`} aria-label={words.by[by]}>
      <header className={styles.head}>
        <h2>{words.by[by]}</h2>
        <span className="t12 soft">{notes.join(', ')}</span>
        <span className="end row wrap">
          <Segmented<GroupBy>
            label={words.byLabel}
            value={by}
            items={GROUPS.map((value) => ({ value, label: words.by[value] }))}
            onChange={onGroup}
          />
          <Button icon={DownloadIcon} disabled={items.length === 0} onClick={() => save(items, by)}>
            {words.csv}
          </Button>
        </span>
      </header>
      {top.isPending && <Skeleton />}
      {top.error && <Failure error={top.error} onRetry={() => void top.refetch()} inline />}
      {top.data && items.length === 0 && <Empty title={words.emptyBy[by]} inline />}
      {items.length > 0 && (
        <Table
          label={words.by[by]}
          rows={items}
          keyOf={(item) => item.key}
          columns={columnsOf(by, items, onSelect)}
          {...(selected !== undefined && { selected })}
        />
      )}
    </section>
  );
}

function columnsOf(by: GroupBy, items: readonly TopItem[], onSelect: (key: string) => void): Column<TopItem>[] {
  const most = Math.max(...items.map((item) => item.calls));
  const name: Column<TopItem> = { key: 'key', title: words.key[by], cell: ({ key }) => <Name by={by} name={key} onSelect={onSelect} /> };
  const bar: Column<TopItem> = {
    key: 'bar',
    title: <span className="visually-hidden">{words.share}</span>,
    wide: true,
    cell: ({ calls }) => (
      <span className={styles.bar} aria-hidden>
        <i style={{ width: `${(calls / most) * 100}%` }} />
      </span>
    ),
  };
  const last: Column<TopItem> = { key: 'last', title: words.last, right: true, wide: true, cell: ({ last_at }) => <Age at={last_at} ago /> };
  const count = (title: string): Column<TopItem> => ({ key: 'calls', title, right: true, cell: ({ calls }) => formatCount(calls) });
  if (by === 'code') return [name, bar, count(words.failed), last];
  return [name, bar, count(words.calls), FAILED, percentile('p50'), percentile('p95'), last];
}

const FAILED: Column<TopItem> = {
  key: 'failed',
  title: words.failed,
  right: true,
  cell: ({ calls, failed }) => {
    const part = calls === 0 ? 0 : failed / calls;
    return <span className={part >= MANY_FAILED ? 'fail-ink medium' : 'soft'}>{formatPart(part)}</span>;
  },
};

function percentile(name: 'p50' | 'p95'): Column<TopItem> {
  return {
    key: name,
    title: words[name],
    right: true,
    wide: name === 'p50',
    cell: ({ [name]: value }) => <span className="soft">{value === null ? '–' : formatDuration(value)}</span>,
  };
}

/** A tool or a source can be shown alone in the plots. */
function Name({ by, name, onSelect }: { by: GroupBy; name: string; onSelect: (key: string) => void }) {
  const shown = by === 'tool' ? <ToolName name={name} /> : <Foreign text={name} limit={80} className={by === 'code' ? 'mono' : ''} />;
  if (by === 'user' || by === 'code') return shown;
  return (
    <button type="button" className={styles.name} title={words.only(name)} onClick={() => onSelect(name)}>
      {shown}
    </button>
  );
}

function save(items: readonly TopItem[], by: GroupBy) {
  const header = [words.key[by], words.calls, words.failed, words.p50, words.p95, words.p99, words.asked, words.lastAt];
  const rows = items.map((item) => [item.key, item.calls, item.failed, item.p50, item.p95, item.p99, item.asked, isoTime(item.last_at)]);
  saveBlob(new Blob([toCsv(header, rows)], { type: 'text/csv' }), `insight-${by}.csv`);
}
