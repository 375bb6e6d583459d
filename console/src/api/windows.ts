/** The windows of time of the page Insight, and how long a step of each is. */

export const RANGES = {
  '1h': { seconds: 3600, step: 60 },
  '24h': { seconds: 86_400, step: 900 },
  '7d': { seconds: 604_800, step: 3600 },
  '30d': { seconds: 2_592_000, step: 21_600 },
} as const;
export type Range = keyof typeof RANGES;
export const RANGE_NAMES = Object.keys(RANGES) as Range[];

/** A window that ends now, or one that a person has zoomed to. */
export interface Window {
  range: Range;
  zoom?: { since: number; until: number };
}

const STEPS = [60, 300, 900, 3600, 21_600, 86_400];
const MOST_STEPS = 130;
const SHORTEST_ZOOM = 600;

/** The window in Unix time, and its step; without `until` it ends now. */
export function limitsOf({ range, zoom }: Window, now: number): { since: number; until?: number; step: number } {
  if (!zoom) return { since: now - RANGES[range].seconds, step: RANGES[range].step };
  return { ...zoom, step: stepFor(zoom.until - zoom.since) };
}

/** The window between two times, at least ten minutes long and in whole minutes. */
export function zoomTo(one: number, other: number): { since: number; until: number } {
  const middle = (one + other) / 2;
  const half = Math.max(Math.abs(one - other), SHORTEST_ZOOM) / 2;
  return { since: Math.round((middle - half) / 60) * 60, until: Math.round((middle + half) / 60) * 60 };
}

function stepFor(seconds: number): number {
  return STEPS.find((step) => seconds / step <= MOST_STEPS) ?? 86_400;
}
