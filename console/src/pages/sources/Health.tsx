import { useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';

import { seriesQuery, type CallFilter } from '../../api/insight';
import { useMe } from '../../api/session';
import { formatCount, formatPart } from '../../format/number';
import { formatClock, formatDuration } from '../../format/time';
import { Empty, Failure, Skeleton } from '../../ui/States';
import { sourceWords } from '../../words';
import { BarChart } from '../now/BarChart';
import styles from './Sources.module.css';

const DAY = { range: '24h' } as const;

/** The calls of the last day to a source or a tool, and how many of them failed. */
export function Health({ filter, head }: { filter: CallFilter; head: ReactNode }) {
  const { scopes } = useMe();
  const allowed = scopes.includes('answer') || scopes.includes('admin');
  const query = useQuery({ ...seriesQuery(DAY, filter), enabled: allowed });
  if (!allowed) return null;
  return (
    <section className={styles.section}>
      {head}
      {query.isPending && <Skeleton rows={3} />}
      {query.error && <Failure inline error={query.error} onRetry={() => void query.refetch()} />}
      {query.data && <Day {...query.data} />}
    </section>
  );
}

interface DayProps {
  begin: number;
  step: number;
  series: { metric: string; values: (number | null)[]; total?: number | null }[];
}

function Day({ begin, step, series }: DayProps) {
  const valuesOf = (metric: string) => series.find((one) => one.metric === metric)?.values ?? [];
  const totalOf = (metric: string) => series.find((one) => one.metric === metric)?.total ?? 0;
  const [calls, failed] = [totalOf('calls'), totalOf('failed')];
  if (calls === 0) return <Empty title={sourceWords.noCalls} inline />;
  const values = valuesOf('calls');
  return (
    <div className={styles.health}>
      <p className="row wrap soft">
        <span>
          <b>{formatCount(calls)}</b> {sourceWords.callsWord}
        </span>
        <span className={failed > 0 ? 'fail-ink' : undefined}>
          <b>{formatCount(failed)}</b> {sourceWords.failedWord(formatPart(failed / calls))}
        </span>
        <span>
          p50 <b>{formatDuration(totalOf('p50'))}</b>
        </span>
        <span>
          p95 <b>{formatDuration(totalOf('p95'))}</b>
        </span>
      </p>
      <BarChart calls={values} failed={valuesOf('failed')} asked={[]} label={sourceWords.chart(formatCount(calls), formatCount(failed))} />
      <p className={styles.axis} aria-hidden>
        {[0, 0.5, 1].map((part) => (
          <span key={part}>{formatClock(begin + part * step * values.length)}</span>
        ))}
      </p>
    </div>
  );
}
