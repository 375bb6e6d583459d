import type { GroupBy, TopItem } from '../../api/insight';
import { formatCount, formatPart } from '../../format/number';
import { formatDuration } from '../../format/time';
import { classes } from '../../ui/classes';
import { Foreign } from '../../ui/Foreign';
import { Table } from '../../ui/Table';
import { Age } from '../../ui/Time';
import { ToolName } from '../../ui/ToolName';
import { insightWords } from '../../words-insight';
import styles from './Insight.module.css';

const MANY_FAILED = 0.02;

/** The tools, sources, users or errors with the most calls. */
export function TopTable({ items, by }: { items: TopItem[]; by: GroupBy }) {
  const most = Math.max(1, ...items.map((item) => item.calls));
  const part = ({ calls, failed }: TopItem) => (calls === 0 ? 0 : failed / calls);
  const duration = (value: number | null) => (value === null ? '–' : formatDuration(value));
  return (
    <Table
      label={insightWords.by[by]}
      rows={items}
      keyOf={(item) => item.key}
      columns={[
        { key: 'key', title: insightWords.key[by], cell: ({ key }) => (by === 'tool' ? <ToolName name={key} /> : <Foreign text={key} />) },
        { key: 'bar', title: <span className="visually-hidden">{insightWords.calls}</span>, wide: true, cell: ({ calls }) => <progress className={styles.bar} value={calls} max={most} aria-hidden /> },
        { key: 'calls', title: insightWords.calls, right: true, cell: ({ calls }) => formatCount(calls) },
        { key: 'failed', title: insightWords.failed, right: true, cell: (item) => <span className={classes(part(item) > MANY_FAILED && 'fail-ink medium')}>{formatPart(part(item))}</span> },
        { key: 'p50', title: insightWords.p50, right: true, wide: true, cell: ({ p50 }) => duration(p50) },
        { key: 'p95', title: insightWords.p95, right: true, cell: ({ p95 }) => duration(p95) },
        { key: 'last', title: insightWords.last, right: true, wide: true, cell: ({ last_at }) => <Age at={last_at} ago /> },
      ]}
    />
  );
}
