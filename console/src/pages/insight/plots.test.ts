import { describe, expect, it } from 'vitest';

import type { Series } from '../../api/insight';
import { limitsOf, zoomTo } from '../../api/windows';
import { toCsv } from '../../views/csv';
import { heights, plotRows, stepsOf } from './plot-data';
import { drawn, mixed } from './plot-options';
import { callsPlot, errorsPlot, tookPlot, waitsPlot } from './plots';
import { axisText, roundedUp } from './values';

const sum = (values: readonly (number | null)[]) => values.reduce<number>((total, value) => total + (value ?? 0), 0);

const series = (metrics: Record<string, (number | null)[]>): Series => ({
  step: 60,
  begin: 1000,
  data_since: null,
  series: Object.entries(metrics).map(([metric, values]) => ({ key: '', metric, total: sum(values), values })),
});

const codes = (counts: Record<string, (number | null)[]>): Series => ({
  ...series({}),
  series: Object.entries(counts).map(([key, values]) => ({ key, metric: 'failed', total: sum(values), values })),
});

describe('the plots', () => {
  it('have a row for each step, which begins at its time', () => {
    const data = series({ calls: [1, 2, 3] });
    const rows = plotRows(stepsOf(data, 2000), callsPlot(data, 'in 1 h').lines);
    expect(rows.map(([begin]) => begin)).toEqual(['1970-01-01T00:16:40.000Z', '1970-01-01T00:17:40.000Z', '1970-01-01T00:18:40.000Z']);
    expect(stepsOf(series({}), 1180).count).toBe(3);
  });

  it('tell failed calls from all calls', () => {
    const plot = callsPlot(series({ calls: [10, 5, null], failed: [1, 5, null] }), 'in 1 h');
    expect(plot.lines.map((one) => one.values)).toEqual([[10, 5, null], [1, 5, null]]);
    expect([plot.title, plot.note]).toEqual(['Calls a minute', '15 in 1 h']);
  });

  it('keep six error codes and add the rest', () => {
    const data = codes(Object.fromEntries(Array.from({ length: 9 }, (_, index) => [`code_${index}`, [index, null]])));
    const { lines, note } = errorsPlot(data, {}, 'in 1 h');
    expect(lines.map((one) => one.name)).toEqual(['code_8', 'code_7', 'code_6', 'code_5', 'code_4', 'code_3', '2 other codes']);
    expect(lines.at(-1)?.values).toEqual([3, 0]);
    expect(note).toBe('36 failed in 1 h');
  });

  it('count only the errors of the tool or the source of the filter', () => {
    const data = codes({ 'crm.add timeout': [1], 'crm.get timeout': [2], 'crmx.get timeout': [4], 'crm.get http_500': [8] });
    const shown = (filter: object) => errorsPlot(data, filter, '').lines.map(({ name, values }) => [name, values[0]]);
    expect(shown({ tool: 'crm.get' })).toEqual([['http_500', 8], ['timeout', 2]]);
    expect(shown({ source: 'crm' })).toEqual([['http_500', 8], ['timeout', 3]]);
  });

  it('stack bars, and leave lines as they are', () => {
    const { lines } = waitsPlot(series({ asked: [3], answered: [2], denied: [1], expired: [null], answer_p50: [5000], answer_p90: [9000] }), '');
    expect(heights(lines)).toEqual([[3], [2], [3], [3], [5000], [9000]]);
    // The highest bar first: the others cover its lower part.
    expect(drawn(lines).map(({ line }) => line.name)).toEqual(['expired', 'denied', 'answered', 'asked', 'median wait', 'p90 wait']);
  });

  it('take percentiles of the window from the gateway, which has all durations', () => {
    const data = series({ p50: [1], p95: [10, 20] });
    const [p50, p95] = data.series;
    if (p50 && p95) data.series = [p50, { ...p95, total: 12 }];
    expect(tookPlot(data, 'in 1 h').note).toBe('p95 12 ms in 1 h');
    data.series = data.series.map((one) => ({ ...one, total: null }));
    expect(tookPlot(data, 'in 1 h').note).toBe('no completed calls');
  });

  it('draw nothing where nobody was asked', () => {
    expect(waitsPlot(series({ asked: [0], answered: [0], denied: [0], expired: [0] }), 'in 1 h').lines).toEqual([]);
  });

  it('are CSV with an empty cell for a step without a value', () => {
    const data = series({ p50: [188, null], p95: [200, null], p99: [300, null] });
    const { lines } = tookPlot(data, '');
    const csv = toCsv(['Begin', ...lines.map(({ name }) => name)], plotRows(stepsOf(data, 2000), lines));
    expect(csv).toBe('Begin,p50,p95,p99\r\n1970-01-01T00:16:40.000Z,188,200,300\r\n1970-01-01T00:17:40.000Z,,,\r\n');
  });
});

describe('a mixture of colours', () => {
  it('takes colours that the build has shortened', () => {
    expect(mixed('#c2352b', '#fff', 0.5)).toBe(mixed('#c2352b', '#ffffff', 0.5));
    expect(mixed('#c2352b', '#fff', 0.5)).toBe('#e19a95');
  });
});

describe('the window', () => {
  it('ends now, or where the zoom does', () => {
    expect(limitsOf({ range: '7d' }, 1_000_000)).toEqual({ since: 395_200, step: 3600 });
    expect(limitsOf({ range: '7d', zoom: { since: 0, until: 7200 } }, 1_000_000)).toEqual({ since: 0, until: 7200, step: 60 });
  });

  it('is at least ten minutes long', () => {
    expect(zoomTo(10_000, 10_020)).toEqual({ since: 9720, until: 10_320 });
    expect(zoomTo(20_000, 10_000)).toEqual({ since: 10_020, until: 19_980 });
  });
});

describe('an axis', () => {
  it.each([
    [null, 'count', 2],
    [7, 'count', 8],
    [1430, 'count', 2000],
    [827, 'duration', 1000],
    [700_000, 'duration', 1_200_000],
    [90_000_000, 'duration', 172_800_000],
  ] as const)('up to %s (%s) ends at %s', (most, unit, end) => {
    expect(roundedUp(most, unit)).toBe(end);
  });

  it.each([
    [1200, 'count', '1,200'],
    [0.5, 'count', ''],
    [800, 'duration', '800 ms'],
    [1500, 'duration', '1.5 s'],
    [600_000, 'duration', '10 min'],
    [0, 'duration', '0'],
  ] as const)('shows %s (%s) as %j', (value, unit, text) => {
    expect(axisText(value, unit)).toBe(text);
  });
});
