/** The figures beside the entries of the sidebar. */

import type { Tone } from '../ui/tone';
import type { PagePath } from './navigation';

export interface Count {
  count: number;
  /** Waits for this person. */
  hot?: boolean;
  /** A dot before the figure. */
  tone?: Tone;
}

export function useCounts(): Partial<Record<PagePath, Count>> {
  return {};
}
