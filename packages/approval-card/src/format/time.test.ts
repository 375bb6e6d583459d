import { describe, expect, it } from 'vitest';

import { formatAge, formatClock, formatCountdown, formatDuration, formatStopwatch, setHours, urgency } from './time';

const MINUTE = 60;
const HOUR = 3600;
const DAY = 86_400;

describe('a countdown', () => {
  it.each([
    [6 * DAY + 23 * HOUR + 59 * MINUTE, '6 d 23 h', 'calm'],
    [DAY, '1 d 0 h', 'calm'],
    [5 * HOUR + 20 * MINUTE, '5 h 20 min', 'calm'],
    [HOUR - 1, '59 min', 'soon'],
    [5 * MINUTE, '5 min', 'soon'],
    [5 * MINUTE - 1, '4 min 59 s', 'urgent'],
    [59.2, '1 min 00 s', 'urgent'],
    [0.4, '1 s', 'urgent'],
    [0, '0 s', 'over'],
    [-5, '0 s', 'over'],
  ])('of %d s is %j and %s', (seconds, shown, state) => {
    expect([formatCountdown(seconds), urgency(seconds)]).toEqual([shown, state]);
  });
});

describe('a duration', () => {
  it.each([
    [188, '188 ms'],
    [1240, '1.24 s'],
    [12_340, '12.3 s'],
    [365_000, '6 min 05 s'],
    [12_000_000, '3 h 20 min'],
    [4 * DAY * 1000, '4 d'],
  ])('of %d ms is %j', (milliseconds, shown) => {
    expect(formatDuration(milliseconds)).toBe(shown);
  });
});

describe('an age', () => {
  it.each([
    [0.2, 'now'],
    [41, '41 s'],
    [38 * MINUTE, '38 min'],
    [2 * DAY, '2 d'],
  ])('of %d s is %j', (seconds, shown) => {
    expect(formatAge(seconds)).toBe(shown);
  });
});

describe('a stopwatch', () => {
  it.each([
    [48.9, '0:48'],
    [725, '12:05'],
    [3730, '1:02:10'],
  ])('at %d s shows %j', (seconds, shown) => {
    expect(formatStopwatch(seconds)).toBe(shown);
  });
});

describe('a time of day', () => {
  it('has 24 hours, or 12 if a person prefers that', () => {
    const afternoon = new Date(2026, 10, 19, 15, 4).getTime() / 1000;
    expect(formatClock(afternoon)).toBe('15:04');
    setHours('h12');
    expect(formatClock(afternoon)).toMatch(/^03:04/);
    setHours('h23');
  });
});
