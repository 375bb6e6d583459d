/** Times and durations in words. Times of the API are Unix seconds. */

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const DATE = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short' });
const DATE_YEAR = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short', year: 'numeric' });

export type Hours = 'h23' | 'h12';

let formats = formatsWith('h23');

/** Show times of day with 24 hours, or with 12 hours and AM or PM. */
export function setHours(hours: Hours): void {
  formats = formatsWith(hours);
}

function formatsWith(hourCycle: Hours) {
  const time = { hour: '2-digit', minute: '2-digit', hourCycle } as const;
  return {
    clock: new Intl.DateTimeFormat(undefined, time),
    clockSeconds: new Intl.DateTimeFormat(undefined, { ...time, second: '2-digit' }),
    exact: new Intl.DateTimeFormat(undefined, { dateStyle: 'full', timeStyle: 'long', hourCycle }),
    weekday: new Intl.DateTimeFormat(undefined, { ...time, weekday: 'long' }),
    shortWeekday: new Intl.DateTimeFormat(undefined, { ...time, weekday: 'short' }),
    dateTime: new Intl.DateTimeFormat(undefined, { ...time, day: 'numeric', month: 'short' }),
  };
}

const date = (seconds: number) => new Date(seconds * 1000);

/** 188 ms, 1.24 s, 6 min 05 s, 3 h 20 min, 4 d. */
export function formatDuration(milliseconds: number): string {
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  const seconds = milliseconds / 1000;
  if (seconds < 10) return `${seconds.toFixed(2)} s`;
  if (seconds < MINUTE) return `${seconds.toFixed(1)} s`;
  if (seconds < HOUR) return `${Math.floor(seconds / MINUTE)} min ${twoDigits(seconds % MINUTE)} s`;
  if (seconds < DAY) return `${Math.floor(seconds / HOUR)} h ${Math.floor((seconds % HOUR) / MINUTE)} min`;
  return `${Math.floor(seconds / DAY)} d`;
}

/** A running time: 0:48, 12:05, 1:02:10. */
export function formatStopwatch(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  const minutes = Math.floor(whole / MINUTE);
  if (minutes < 60) return `${minutes}:${twoDigits(whole % MINUTE)}`;
  return `${Math.floor(minutes / 60)}:${twoDigits(minutes % 60)}:${twoDigits(whole % MINUTE)}`;
}

/** How long ago, in one unit: "now", "38 min", "5 h", "2 d". */
export function formatAge(seconds: number): string {
  if (seconds < 1) return 'now';
  if (seconds < MINUTE) return `${Math.floor(seconds)} s`;
  if (seconds < HOUR) return `${Math.floor(seconds / MINUTE)} min`;
  if (seconds < DAY) return `${Math.floor(seconds / HOUR)} h`;
  return `${Math.floor(seconds / DAY)} d`;
}

/** What is left until a time: days and hours, then hours and minutes, minutes, and seconds below five minutes. */
export function formatCountdown(seconds: number): string {
  const left = Math.max(0, Math.ceil(seconds));
  if (left >= DAY) return `${Math.floor(left / DAY)} d ${Math.floor((left % DAY) / HOUR)} h`;
  if (left >= HOUR) return `${Math.floor(left / HOUR)} h ${Math.floor((left % HOUR) / MINUTE)} min`;
  if (left >= 5 * MINUTE) return `${Math.floor(left / MINUTE)} min`;
  if (left >= MINUTE) return `${Math.floor(left / MINUTE)} min ${twoDigits(left % MINUTE)} s`;
  return `${left} s`;
}

/** How soon something expires: an hour is `soon`, five minutes are `urgent`. */
export type Urgency = 'calm' | 'soon' | 'urgent' | 'over';

export function urgency(seconds: number): Urgency {
  if (seconds <= 0) return 'over';
  if (seconds < 5 * MINUTE) return 'urgent';
  return seconds < HOUR ? 'soon' : 'calm';
}

/** The clock time within a day of now; the date beyond. */
export function formatMoment(seconds: number, now: number): string {
  if (Math.abs(now - seconds) < DAY) return formats.clock.format(date(seconds));
  const sameYear = date(seconds).getFullYear() === date(now).getFullYear();
  return (sameYear ? DATE : DATE_YEAR).format(date(seconds));
}

export const formatClock = (seconds: number) => formats.clock.format(date(seconds));
export const formatClockSeconds = (seconds: number) => formats.clockSeconds.format(date(seconds));
export const formatExact = (seconds: number) => formats.exact.format(date(seconds));
export const formatWeekday = (seconds: number) => formats.weekday.format(date(seconds));
export const formatShortWeekday = (seconds: number) => formats.shortWeekday.format(date(seconds));
export const formatDateTime = (seconds: number) => formats.dateTime.format(date(seconds));
export const isoTime = (seconds: number) => date(seconds).toISOString();

function twoDigits(count: number): string {
  return String(Math.floor(count)).padStart(2, '0');
}
