/** The four plots of the page Insight. */

import type { CallFilter, Series } from '../../api/insight';
import { formatCount } from '../../format/number';
import { formatDuration } from '../../format/time';
import { insightWords as words } from '../../words';
import { errorLines, metric, sum, type Plot, type PlotLine } from './plot-data';

const FAST = { token: '--ok' };
const SLOW = { token: '--run' };
const SLOWEST = { token: '--taint' };
const ASKED = { token: '--wait' };
const FAILED = { token: '--fail' };

/** Calls that ended, and below them those of them that failed. */
export function callsPlot(data: Series, range: string): Plot {
  const calls = metric(data, 'calls');
  return {
    title: words.callsTitle(words.steps[data.step] ?? words.stepOf(formatDuration(data.step * 1000))),
    note: words.callsNote(formatCount(calls.total ?? 0), range),
    unit: 'count',
    lines: [
      { name: words.lineCalls, ink: FAST, look: 'area', values: calls.values },
      { name: words.lineFailed, ink: FAILED, look: 'area', dash: [5, 3], values: metric(data, 'failed').values },
    ],
  };
}

export function tookPlot(data: Series, range: string): Plot {
  const { total } = metric(data, 'p95');
  return {
    title: words.tookTitle,
    note: total === null ? words.tookNone : words.tookNote(formatDuration(total), range),
    unit: 'duration',
    lines: [
      { name: words.p50, ink: FAST, look: 'line', values: metric(data, 'p50').values },
      { name: words.p95, ink: SLOW, look: 'line', dash: [7, 3], values: metric(data, 'p95').values },
      { name: words.p99, ink: SLOWEST, look: 'line', dash: [2, 3], values: metric(data, 'p99').values },
    ],
  };
}

export function errorsPlot(errors: Series | undefined, filter: CallFilter, range: string): Plot {
  const lines = errorLines(errors, filter);
  const count = lines.reduce((total, { values }) => total + sum(values), 0);
  return { title: words.errorsTitle, note: words.errorsNote(formatCount(count), range), unit: 'count', lines };
}

/** Questions at the left of each step, their outcomes at the right, and how long the answers took as a line. */
export function waitsPlot(data: Series, range: string): Plot {
  const asked = metric(data, 'asked');
  const half = metric(data, 'answer_p50');
  const answered = { ...metric(data, 'answered'), name: words.answered, ink: FAST };
  const denied = { ...metric(data, 'denied'), name: words.denied, ink: FAILED };
  const expired = { ...metric(data, 'expired'), name: words.expired, ink: { token: '--idle' } };
  const outcomes = [answered, denied, expired].map(({ name, ink, values }): PlotLine => ({ name, ink, values, look: 'bars', stack: 'right' }));
  const notes = [words.waitsNote(formatCount(asked.total ?? 0), range)];
  if (half.total !== null) notes.push(words.waitsHalf(formatDuration(half.total)));
  const used = [asked, answered, denied, expired].some(({ values }) => sum(values) > 0);
  const lines: PlotLine[] = [
    { name: words.asked, ink: ASKED, values: asked.values, look: 'bars', stack: 'left' },
    ...outcomes,
    { name: words.answerP50, ink: SLOW, look: 'line', unit: 'duration', values: half.values },
    { name: words.answerP90, ink: SLOWEST, look: 'line', dash: [2, 3], unit: 'duration', values: metric(data, 'answer_p90').values },
  ];
  return { title: words.waitsTitle, note: notes.join(', '), unit: 'count', lines: used ? lines : [] };
}
