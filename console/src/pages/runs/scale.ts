/** Where a time is on the screen: linear, with pauses folded, or by the order of events. */

import type { Stretch } from './spans';

export interface Fold extends Stretch {
  /** From 0 to 1. */
  x: number;
  width: number;
}

export interface Tick {
  x: number;
  /** Seconds since the begin. */
  at: number;
}

export interface Scale {
  begin: number;
  end: number;
  folds: Fold[];
  ticks: Tick[];
  /** The place of a time, from 0 to 1. */
  x: (time: number) => number;
}

interface Break {
  time: number;
  x: number;
}

const FOLDED_ABOVE_S = 5;
const FOLD_WIDTH = 0.13;
const ALL_FOLDS_WIDTH = 0.52;
const TICKS = 9;
const STEPS_S = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 86_400];
const SHORTEST_S = 0.001;

/** Time in proportion; pauses above five seconds take 13 % of the width each. */
export function timeScale(begin: number, end: number, pauses: readonly Stretch[]): Scale {
  const last = Math.max(end, begin + SHORTEST_S);
  const folded = pauses.filter(({ from, to }) => to - from > FOLDED_ABOVE_S);
  const width = folded.length === 0 ? 0 : Math.min(FOLD_WIDTH, ALL_FOLDS_WIDTH / folded.length);
  const shown = Math.max(SHORTEST_S, last - begin - folded.reduce((sum, { from, to }) => sum + to - from, 0));
  const share = (1 - width * folded.length) / shown;
  const breaks: Break[] = [{ time: begin, x: 0 }];
  const folds: Fold[] = [];
  let [time, x] = [begin, 0];
  for (const { from, to } of folded) {
    x += (from - time) * share;
    breaks.push({ time: from, x }, { time: to, x: x + width });
    folds.push({ from, to, x, width });
    x += width;
    time = to;
  }
  breaks.push({ time: last, x: 1 });
  const place = placer(breaks);
  return { begin, end: last, folds, x: place, ticks: timeTicks(begin, last, shown, folds, place) };
}

/** One step for each time at which something happened. */
export function orderScale(times: readonly number[]): Scale {
  const distinct = [...new Set(times)].sort((a, b) => a - b);
  const [begin = 0] = distinct;
  const end = distinct.at(-1) ?? begin;
  const steps = Math.max(1, distinct.length - 1);
  const breaks = distinct.map((time, index) => ({ time, x: index / steps }));
  return { begin, end, folds: [], ticks: [], x: placer(breaks) };
}

/** Interpolates between places; times outside are at the edges. */
function placer(breaks: readonly Break[]): (time: number) => number {
  return (time) => {
    const after = breaks.findIndex((one) => one.time >= time);
    const b = breaks[after];
    const a = breaks[after - 1];
    if (!b) return breaks.length === 0 ? 0 : 1;
    if (!a || b.time === a.time) return b.x;
    return a.x + ((time - a.time) / (b.time - a.time)) * (b.x - a.x);
  };
}

function timeTicks(begin: number, end: number, shown: number, folds: readonly Fold[], x: (time: number) => number): Tick[] {
  const step = STEPS_S.find((one) => shown / one <= TICKS) ?? shown / TICKS;
  const ticks: Tick[] = [];
  let next = 0;
  while (begin + next <= end && ticks.length < 200) {
    const fold = folds.find((one) => begin + next > one.from && begin + next < one.to);
    // Skips a fold in one step: it may be days long.
    if (fold) next = Math.ceil((fold.to - begin) / step) * step;
    else {
      ticks.push({ x: x(begin + next), at: next });
      next += step;
    }
  }
  return apart(ticks);
}

/** Ticks that do not lie over each other. */
function apart(ticks: readonly Tick[]): Tick[] {
  const kept: Tick[] = [];
  for (const tick of ticks) if (tick.x - (kept.at(-1)?.x ?? -1) > 0.055) kept.push(tick);
  return kept;
}

/** A time since the begin as an axis says it: 0.2 s, 5 s, 6:02, 1:10:00. */
export function tickLabel(seconds: number): string {
  if (seconds < 60) return seconds < 1 && seconds > 0 ? `${Math.round(seconds * 1000)} ms` : `${Number(seconds.toFixed(2))} s`;
  const whole = Math.round(seconds);
  const two = (count: number) => String(count).padStart(2, '0');
  const minutes = Math.floor(whole / 60);
  return minutes < 60 ? `${minutes}:${two(whole % 60)}` : `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(whole % 60)}`;
}
