/** Answers of the API as what the plots draw and their tables list. */

import type { CallFilter, Series } from '../../api/insight';
import type { Json } from '../../schema/json';
import { insightWords } from '../../words';

export type Values = readonly (number | null)[];
/** A colour of the design, or a part of it mixed with the ground. */
export interface Ink {
  token: string;
  part?: number;
}

export interface PlotLine {
  name: string;
  ink: Ink;
  look: 'area' | 'line' | 'bars';
  values: Values;
  /** Lines of one plot differ by their dashes too. */
  dash?: number[];
  /** Bars of one stack stand on each other, in their order. */
  stack?: 'left' | 'right' | 'whole';
  /** Drawn on a scale of its own at the left: durations beside counts. */
  unit?: Unit;
}

export type Unit = 'count' | 'duration';

export interface Plot {
  title: string;
  note: string;
  unit: Unit;
  lines: readonly PlotLine[];
}

/** The steps of all plots: the same for each, so that they share one cursor. */
export interface Steps {
  begin: number;
  step: number;
  count: number;
}

const NONE: Values = [];
const SHOWN_CODES = 6;
const CODE_INKS: readonly Ink[] = [
  { token: '--fail' },
  { token: '--wait' },
  { token: '--taint' },
  { token: '--run' },
  { token: '--fail', part: 0.5 },
  { token: '--wait', part: 0.5 },
];

export function stepsOf({ begin, step, series }: Series, until: number): Steps {
  return { begin, step, count: series[0]?.values.length ?? Math.max(1, Math.ceil((until - begin) / step)) };
}

/** The values and the total of one metric. */
export function metric(data: Series | undefined, name: string): { values: Values; total: number | null } {
  return data?.series.find((one) => one.metric === name) ?? { values: NONE, total: null };
}

/** Failures by error code, the most frequent first; those beyond six are one series. */
export function errorLines(data: Series | undefined, filter: CallFilter): PlotLine[] {
  const byCode = new Map<string, number[]>();
  for (const { key, values } of data?.series ?? []) {
    const code = codeOf(key, filter);
    if (code === undefined) continue;
    byCode.set(code, added(byCode.get(code), values));
  }
  const failed = [...byCode].filter(([, values]) => sum(values) > 0);
  const ordered = failed.sort(([, a], [, b]) => sum(b) - sum(a));
  const rest = ordered.slice(SHOWN_CODES).map(([, values]) => values);
  const lines = ordered.slice(0, SHOWN_CODES).map(([name, values], index): PlotLine => {
    return { name, values, look: 'bars', stack: 'whole', ink: CODE_INKS[index] ?? { token: '--idle' } };
  });
  if (rest.length > 0) {
    const values = rest.reduce((total, one) => added(total, one));
    lines.push({ name: insightWords.otherCodes(rest.length), values, look: 'bars', stack: 'whole', ink: { token: '--idle' } });
  }
  return lines;
}

/** The error code of a key: a code, or with a filter a tool and a code, of which only some belong to the filter. */
function codeOf(key: string, { tool, source }: CallFilter): string | undefined {
  if (tool === undefined && source === undefined) return key;
  const blank = key.lastIndexOf(' ');
  const name = key.slice(0, blank);
  const isIncluded = tool === undefined ? name.startsWith(`${source ?? ''}.`) : name === tool;
  return isIncluded ? key.slice(blank + 1) : undefined;
}

/** The values that are drawn for each line: those of a stack on top of the ones before. */
export function heights(lines: readonly PlotLine[]): Values[] {
  const tops = new Map<string, number[]>();
  return lines.map(({ stack, values }) => {
    if (stack === undefined) return values;
    const top = added(tops.get(stack), values);
    tops.set(stack, top);
    return top;
  });
}

/** A row a step: its begin, then the value of each line. */
export function plotRows({ begin, step, count }: Steps, lines: readonly PlotLine[]): (Json | undefined)[][] {
  return Array.from({ length: count }, (_, index) => [
    new Date((begin + index * step) * 1000).toISOString(),
    ...lines.map(({ values }) => values[index] ?? undefined),
  ]);
}

export function sum(values: Values): number {
  return values.reduce<number>((total, value) => total + (value ?? 0), 0);
}

function added(total: readonly number[] | undefined, values: Values): number[] {
  return values.map((value, index) => (value ?? 0) + (total?.[index] ?? 0));
}
