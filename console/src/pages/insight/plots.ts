/** The plots of Insight: which series each has, made from the metrics of the API. */

import type { Series } from '../../api/insight';
import { formatCount } from '../../format/number';
import { formatDuration } from '../../format/time';
import { insightWords } from '../../words-insight';

/** A custom property of the tokens that has the colour. */
export type Colour = '--ok' | '--fail' | '--run' | '--taint' | '--wait' | '--idle' | '--accent';

export interface PlotSeries {
  label: string;
  colour: Colour;
  values: (number | null)[];
  kind: 'area' | 'line' | 'bar';
  /** Series differ by dash also, not by colour alone. */
  dash?: number[];
  /** On an axis of its own, in milliseconds. */
  duration?: boolean;
}

export interface PlotData {
  id: string;
  title: string;
  note: string;
  times: number[];
  series: PlotSeries[];
  format: (value: number) => string;
}

type Values = (number | null)[];

/** The times at which the values of a series begin. */
export function timesOf({ begin, step, series }: Series): number[] {
  return Array.from({ length: series[0]?.values.length ?? 0 }, (_, index) => begin + index * step);
}

export function metric({ series }: Series, name: string): Values {
  return series.find((one) => one.metric === name)?.values ?? [];
}

export function callsPlot(data: Series, range: string, step: string): PlotData {
  const calls = metric(data, 'calls');
  const failed = metric(data, 'failed');
  const completed = calls.map((value, index) => (value === null ? null : value - (failed[index] ?? 0)));
  return {
    id: 'calls',
    title: insightWords.callsStep(step),
    note: insightWords.callsIn(formatCount(total(calls)), range),
    times: timesOf(data),
    series: [
      { label: insightWords.completed, colour: '--ok', values: completed, kind: 'area' },
      { label: insightWords.failedSeries, colour: '--fail', values: failed, kind: 'area', dash: [5, 3] },
    ],
    format: formatCount,
  };
}

export function durationsPlot(data: Series): PlotData {
  const p95 = metric(data, 'p95');
  const typical = middle(p95);
  return {
    id: 'durations',
    title: insightWords.durations,
    note: typical === undefined ? '' : insightWords.p95Of(formatDuration(typical)),
    times: timesOf(data),
    series: [
      { label: insightWords.p50, colour: '--ok', values: metric(data, 'p50'), kind: 'line' },
      { label: insightWords.p95, colour: '--run', values: p95, kind: 'line', dash: [8, 3] },
      { label: insightWords.p99, colour: '--taint', values: metric(data, 'p99'), kind: 'line', dash: [2, 3] },
    ],
    format: formatDuration,
  };
}

const CODE_COLOURS: readonly Colour[] = ['--fail', '--wait', '--taint', '--run', '--ok', '--accent'];

/** The six most frequent codes, and the rest as one. */
export function errorsPlot(data: Series): PlotData {
  const byCode = [...data.series].sort((a, b) => total(b.values) - total(a.values));
  const shown = byCode.slice(0, CODE_COLOURS.length);
  const rest = byCode.slice(CODE_COLOURS.length);
  const series = shown.map((one, index): PlotSeries => ({ label: one.key, colour: CODE_COLOURS[index] ?? '--idle', values: one.values, kind: 'bar' }));
  if (rest.length > 0) series.push({ label: insightWords.otherCodes, colour: '--idle', values: sum(rest.map((one) => one.values)), kind: 'bar' });
  return {
    id: 'errors',
    title: insightWords.errors,
    note: insightWords.errorsIn(formatCount(byCode.reduce((all, one) => all + total(one.values), 0))),
    times: timesOf(data),
    series,
    format: formatCount,
  };
}

export function waitsPlot(data: Series): PlotData {
  const asked = metric(data, 'asked');
  const answerTimes = metric(data, 'answer_p50');
  const half = middle(answerTimes);
  return {
    id: 'waits',
    title: insightWords.waits,
    note: insightWords.waitsIn(formatCount(total(asked)), half === undefined ? undefined : formatDuration(half)),
    times: timesOf(data),
    series: [
      { label: insightWords.answered, colour: '--ok', values: metric(data, 'answered'), kind: 'bar' },
      { label: insightWords.denied, colour: '--fail', values: metric(data, 'denied'), kind: 'bar' },
      { label: insightWords.expired, colour: '--idle', values: metric(data, 'expired'), kind: 'bar' },
      { label: insightWords.asked, colour: '--wait', values: asked, kind: 'line', dash: [4, 3] },
      { label: insightWords.answerTime, colour: '--run', values: answerTimes, kind: 'line', dash: [8, 3], duration: true },
    ],
    format: formatCount,
  };
}

/** Bars upon each other: each series with those before it added. */
export function stacked(series: readonly PlotSeries[]): Values[] {
  const below: number[] = [];
  return series.map((one) => {
    if (one.kind !== 'bar') return one.values;
    return one.values.map((value, index) => {
      below[index] = (below[index] ?? 0) + (value ?? 0);
      return below[index];
    });
  });
}

export function total(values: Values): number {
  return values.reduce<number>((all, value) => all + (value ?? 0), 0);
}

/** The median of the values there are. */
export function middle(values: Values): number | undefined {
  const known = values.filter((value): value is number => value !== null).sort((a, b) => a - b);
  return known[Math.floor(known.length / 2)];
}

function sum(lists: readonly Values[]): Values {
  return (lists[0] ?? []).map((_, index) => lists.reduce((all, values) => all + (values[index] ?? 0), 0));
}
