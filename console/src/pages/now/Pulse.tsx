import { useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';

import { openCardsQuery, p95Query, pulseQuery, WINDOWS, type WindowName } from '../../api/queries';
import { useMe } from '../../api/session';
import { useNow } from '../../format/clock';
import { formatCount, formatPart, formatRate } from '../../format/number';
import { formatAge, formatClock } from '../../format/time';
import { classes } from '../../ui/classes';
import { Empty, Failure } from '../../ui/States';
import { words } from '../../words';
import { BarChart } from './BarChart';
import styles from './now.module.css';

type Values = readonly (number | null)[];

/** The figures of the window, and a bar for each step of it. */
export function Pulse({ window }: { window: WindowName }) {
  const { scopes } = useMe();
  const allowed = scopes.includes('answer') || scopes.includes('admin');
  const pulse = useQuery({ ...pulseQuery(window), enabled: allowed });
  if (!allowed) return <Empty title={words.now.noFigures} inline />;
  if (pulse.error) return <Failure error={pulse.error} onRetry={() => void pulse.refetch()} inline />;
  const series = new Map(pulse.data?.series.map((one) => [one.metric, one.values]));
  const calls = series.get('calls') ?? [];
  const failed = series.get('failed') ?? [];
  const asked = series.get('asked') ?? [];
  const begin = pulse.data?.begin ?? 0;
  const step = pulse.data?.step ?? WINDOWS[window].step;
  const minutes = WINDOWS[window].seconds / 60;
  const [callCount, failedCount] = [sum(calls), sum(failed)];
  return (
    <section className={styles.pulse}>
      <div className={styles.figures}>
        <Figure label={words.now.calls} value={formatCount(callCount)}>
          {words.now.aMinute(formatRate(callCount / minutes))}
        </Figure>
        <Figure label={words.now.failed} value={formatCount(failedCount)} tone={failedCount > 0 ? 'fail-ink' : 'faint'}>
          {formatPart(callCount === 0 ? 0 : failedCount / callCount)}
        </Figure>
        <WaitingFigure />
        <P95Figure />
      </div>
      <div>
        <div className={styles.legend}>
          <span>
            <i className={classes(styles.swatch, styles.calls)} />
            {words.now.legend.calls}
          </span>
          <span>
            <i className={classes(styles.swatch, styles.failed)} />
            {words.now.legend.failed}
          </span>
          <span>
            <i className={styles.asked} />
            {words.now.legend.asked}
          </span>
        </div>
        <BarChart
          calls={calls}
          failed={failed}
          asked={asked}
          label={words.now.chart(formatCount(callCount), formatCount(failedCount))}
        />
        <Axis begin={begin} end={begin + Math.max(step * calls.length, WINDOWS[window].seconds)} />
      </div>
    </section>
  );
}

function WaitingFigure() {
  const now = useNow(10);
  const cards = useQuery(openCardsQuery).data ?? [];
  const oldest = Math.min(...cards.map((card) => card.created_at));
  return (
    <Figure
      label={words.now.waiting}
      value={formatCount(cards.length)}
      tone={cards.length > 0 ? 'wait-ink' : 'faint'}
    >
      {cards.length > 0 ? words.now.oldest(formatAge(now - oldest)) : words.now.nothingWaits}
    </Figure>
  );
}

function P95Figure() {
  const values = useQuery(p95Query).data?.series[0]?.values ?? [];
  const last = values.findLast((value) => value !== null);
  if (last == null) return null;
  const seconds = last >= 1000;
  return (
    <Figure
      label={words.now.p95}
      value={
        <>
          {seconds ? (last / 1000).toFixed(2) : Math.round(last)} <small>{seconds ? 's' : 'ms'}</small>
        </>
      }
    >
      {words.now.p95Note}
    </Figure>
  );
}

function Figure({
  label,
  value,
  tone = 'faint',
  children,
}: {
  label: string;
  value: ReactNode;
  tone?: string;
  children: ReactNode;
}) {
  return (
    <div>
      <div className={styles.label}>{label}</div>
      <div className={styles.value}>{value}</div>
      <div className={`t12 ${tone}`}>{children}</div>
    </div>
  );
}

function Axis({ begin, end }: { begin: number; end: number }) {
  if (begin === 0) return null;
  return (
    <div className={styles.axis}>
      {[0, 0.25, 0.5, 0.75, 1].map((part) => (
        <span key={part}>{formatClock(begin + (end - begin) * part)}</span>
      ))}
    </div>
  );
}

function sum(values: Values): number {
  return values.reduce<number>((total, value) => total + (value ?? 0), 0);
}
