import { describe, expect, it } from 'vitest';

import type { Series } from '../../api/insight';
import { callsPlot, durationsPlot, errorsPlot, middle, stacked, timesOf, waitsPlot } from './plots';

const series = (metrics: Record<string, (number | null)[]>): Series => ({
  step: 60,
  begin: 1000,
  data_since: null,
  series: Object.entries(metrics).map(([metric, values]) => ({ key: '', metric, values })),
});

describe('the plots', () => {
  it('begin each value at its time', () => {
    expect(timesOf(series({ calls: [1, 2, 3] }))).toEqual([1000, 1060, 1120]);
    expect(timesOf(series({}))).toEqual([]);
  });

  it('tell completed calls from failed ones', () => {
    const plot = callsPlot(series({ calls: [10, 5, null], failed: [1, 5, null] }), '1 h', 'a minute');
    expect(plot.series.map((one) => one.values)).toEqual([[9, 0, null], [1, 5, null]]);
    expect(plot.note).toBe('15 in 1 h');
  });

  it('keep six error codes and add the rest', () => {
    const data: Series = { ...series({}), series: Array.from({ length: 9 }, (_, index) => ({ key: `code_${index}`, metric: 'failed', values: [index, null] })) };
    const plot = errorsPlot(data);
    expect(plot.series.map((one) => one.label)).toEqual(['code_8', 'code_7', 'code_6', 'code_5', 'code_4', 'code_3', 'other']);
    expect(plot.series.at(-1)?.values).toEqual([3, 0]);
  });

  it('stack bars, and leave lines as they are', () => {
    const plot = waitsPlot(series({ asked: [3], answered: [2], denied: [1], expired: [null], answer_p50: [5000], answer_p90: [9000] }));
    expect(stacked(plot.series)).toEqual([[2], [3], [3], [3], [5000]]);
  });

  it('say nothing of durations where there are none', () => {
    expect(durationsPlot(series({ p50: [null], p95: [null], p99: [null] })).note).toBe('');
    expect(middle([5, null, 1, 9])).toBe(5);
  });
});
