/** How uPlot draws a plot. Colours are those of the design, read when it draws, so that it follows the theme. */

import uPlot from 'uplot';

import { formatClock } from '../../format/time';
import type { Ink, PlotLine, Steps, Unit } from './plot-data';
import { axisText, roundedUp } from './values';

const DAY = 86_400;
const FONT = '500 11px Geist, system-ui, sans-serif';
const AXIS_WIDTH = 58;
const PAIR_WIDTH = 0.42;
const BAR_WIDTH = 0.78;
/** Plots with this key share the cursor. */
const CURSOR = 'insight';
const LEFT_SCALE = 'left';
/* eslint-disable @typescript-eslint/no-unsafe-enum-assignment -- the enums of uPlot have no values at run time */
const SIDES: Record<'right' | 'left', uPlot.Axis.Side> = { right: 1, left: 3 };
const LABEL_BEGINS_HERE: uPlot.Axis.Align = 1;
/* eslint-enable */

export interface PlotEvents {
  /** A step is under the cursor, or none; `left` is the cursor's place in a plot of this width. */
  onCursor: (index: number | null, left: number, width: number) => void;
  onZoom: (since: number, until: number) => void;
  onReset: () => void;
}

export function plotOptions(lines: readonly PlotLine[], unit: Unit, steps: Steps, size: { width: number; height: number }, on: PlotEvents): uPlot.Options {
  const end = steps.begin + steps.step * steps.count;
  const leftUnit = lines.find((line) => line.unit !== undefined)?.unit;
  return {
    ...size,
    padding: [8, 0, 0, leftUnit === undefined ? 0 : null],
    legend: { show: false },
    scales: {
      x: { range: () => [steps.begin, end] },
      y: { range: (_, __, most) => [0, roundedUp(most, unit)] },
      [LEFT_SCALE]: { range: (_, __, most) => [0, roundedUp(most, leftUnit ?? unit)] },
    },
    axes: [timeAxis(), valueAxis(unit, 'y', 'right'), ...(leftUnit === undefined ? [] : [valueAxis(leftUnit, LEFT_SCALE, 'left')])],
    series: [{}, ...drawn(lines).map(({ line }) => seriesOf(line))],
    cursor: {
      y: false,
      sync: { key: CURSOR, setSeries: false, filters: { pub: (type) => type === 'mousemove' || type === 'mouseleave' } },
      drag: { x: true, y: false, setScale: false },
      points: { show: false },
      bind: {
        dblclick: () => () => {
          on.onReset();
          return null;
        },
      },
    },
    hooks: {
      setCursor: [({ cursor, over }) => on.onCursor(cursor.idx ?? null, cursor.left ?? 0, over.clientWidth)],
      setSelect: [
        (plot) => {
          const { left, width } = plot.select;
          if (width < 6) return;
          plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          on.onZoom(plot.posToVal(left, 'x'), plot.posToVal(left + width, 'x'));
        },
      ],
    },
  };
}

/** The lines as they are drawn: a bar that stands on others before those, which cover its lower part. */
export function drawn(lines: readonly PlotLine[]): { line: PlotLine; index: number }[] {
  const all = lines.map((line, index) => ({ line, index }));
  return [...all.filter(({ line }) => line.stack !== undefined).reverse(), ...all.filter(({ line }) => line.stack === undefined)];
}

function seriesOf(line: PlotLine): uPlot.Series {
  const colour = () => resolved(line.ink);
  const scale = line.unit === undefined ? 'y' : LEFT_SCALE;
  if (line.look === 'bars') {
    return { scale, width: 0, fill: colour, points: { show: false }, paths: barsOf(line) };
  }
  return {
    scale,
    width: 1.5,
    stroke: colour,
    dash: line.dash,
    ...(line.look === 'area' && { fill: () => `${resolved(line.ink)}2e` }),
    points: { show: true, size: 4, fill: colour, width: 0, filter: (plot, series) => alone(plot.data[series] ?? []) },
  };
}

function barsOf({ stack }: PlotLine): uPlot.Series.PathBuilder | undefined {
  if (stack === 'whole') return uPlot.paths.bars?.({ size: [BAR_WIDTH, 24] });
  return uPlot.paths.bars?.({ size: [PAIR_WIDTH, 12], align: stack === 'left' ? -1 : 1 });
}

/** Values with none beside them, which a line would not show. */
function alone(values: ArrayLike<number | null | undefined>): number[] {
  const isValue = (index: number) => values[index] !== null && values[index] !== undefined;
  return Array.from({ length: values.length }, (_, index) => index).filter(
    (index) => isValue(index) && !isValue(index - 1) && !isValue(index + 1),
  );
}

function timeAxis(): uPlot.Axis {
  return {
    font: FONT,
    stroke: () => token('--faint'),
    space: 64,
    size: 26,
    gap: 6,
    align: LABEL_BEGINS_HERE,
    ticks: { show: false },
    grid: { stroke: () => token('--line'), width: 1, dash: [3, 3] },
    values: (_, splits, __, ___, increment) => splits.map((at) => timeLabel(at, increment)),
  };
}

function valueAxis(unit: Unit, scale: string, side: keyof typeof SIDES): uPlot.Axis {
  return {
    scale,
    side: SIDES[side],
    font: FONT,
    stroke: () => token('--faint'),
    size: AXIS_WIDTH,
    gap: 6,
    ticks: { show: false },
    grid: { show: scale === 'y', stroke: () => token('--line'), width: 1 },
    splits: (_, __, ___, most) => [0, most / 2, most],
    values: (_, splits) => splits.map((value) => axisText(value, unit)),
  };
}

const LONGEST_WEEKDAY = 2 * DAY;
const DATE = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short' });
const WEEKDAY = new Intl.DateTimeFormat(undefined, { weekday: 'short' });

/** The clock time, and at midnight the day; weekdays where a label is a day, dates beyond. */
function timeLabel(at: number, increment: number): string {
  const date = new Date(at * 1000);
  const isMidnight = date.getHours() === 0 && date.getMinutes() === 0;
  if (increment > LONGEST_WEEKDAY) return DATE.format(date);
  return increment >= DAY || isMidnight ? WEEKDAY.format(date) : formatClock(at);
}

function token(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** A colour as #rrggbb; a part of it is mixed with the ground, for bars that cover others. */
function resolved({ token: name, part }: Ink): string {
  return part === undefined ? token(name) : mixed(token(name), token('--surface'), part);
}

/** The mixture of two colours in hexadecimal; the build shortens #ffffff to #fff. */
export function mixed(colour: string, ground: string, part: number): string {
  const [one, other] = [colour, ground].map(withSixDigits);
  const channel = (text: string | undefined, at: number) => parseInt(text?.slice(at, at + 2) ?? '', 16);
  const mix = (at: number) => Math.round(channel(one, at) * part + channel(other, at) * (1 - part));
  return `#${[1, 3, 5].map((at) => mix(at).toString(16).padStart(2, '0')).join('')}`;
}

function withSixDigits(colour: string): string {
  return colour.length === 4 ? colour.replace(/[^#]/g, '$&$&') : colour;
}
