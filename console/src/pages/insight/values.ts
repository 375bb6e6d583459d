/** Values of plots as text, and the ends of their axes. */

import { formatCount } from '../../format/number';
import { formatDuration } from '../../format/time';
import type { Unit } from './plot-data';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const ROUND_MINUTES = [1, 2, 4, 6, 10, 20, 40].map((count) => count * MINUTE);
const ROUND_HOURS = [1, 2, 4, 6, 12, 24].map((count) => count * HOUR);

export function formatValue(value: number, unit: Unit): string {
  return unit === 'count' ? formatCount(value) : formatDuration(value);
}

/** A value beside an axis: 1,200, 800 ms, 1.5 s, 20 min. */
export function axisText(value: number, unit: Unit): string {
  if (unit === 'count') return Number.isInteger(value) ? formatCount(value) : '';
  if (value === 0) return '0';
  if (value < SECOND) return `${value} ms`;
  if (value < MINUTE) return `${value / SECOND} s`;
  if (value < HOUR) return `${value / MINUTE} min`;
  return value < DAY ? `${value / HOUR} h` : `${value / DAY} d`;
}

/** The end of an axis: a round number of which the half is round too. */
export function roundedUp(most: number | null, unit: Unit): number {
  if (most === null || !Number.isFinite(most) || most <= 2) return 2;
  if (unit === 'count' || most <= 40 * SECOND) return roundNumber(most);
  return [...ROUND_MINUTES, ...ROUND_HOURS].find((end) => end >= most) ?? roundNumber(most / DAY) * DAY;
}

/** The next of 1, 2, 4, 6, 8 with zeros. */
function roundNumber(most: number): number {
  const power = 10 ** Math.floor(Math.log10(most));
  const factor = [1, 2, 4, 6, 8, 10].find((one) => one * power >= most) ?? 10;
  return factor * power;
}
