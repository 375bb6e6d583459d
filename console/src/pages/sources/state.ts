/** The state of a source in words and colour, worst first. */

import type { Source } from '../../api/types';
import { formatAge, formatCountdown } from '../../format/time';
import type { Tone } from '../../ui/tone';
import { sourceWords } from '../../words';

export interface SourceLook {
  tone: Tone | 'half';
  text: string;
  /** It needs attention. */
  attention: boolean;
}

export function lookOf(source: Source, now: number): SourceLook {
  const { state, breaker, lock, since } = source;
  const age = since === null ? undefined : formatAge(Math.max(0, now - since));
  if (state === 'disabled') return { tone: 'idle', text: sourceWords.disabled, attention: false };
  if (state === 'down') return { tone: 'fail', text: age === undefined ? sourceWords.down : sourceWords.downSince(age), attention: true };
  if (breaker.state === 'open') return { tone: 'half', text: sourceWords.breakerOpen(formatCountdown(breaker.retry_in_s ?? 0)), attention: true };
  if (breaker.state === 'half_open') return { tone: 'half', text: sourceWords.breakerHalf, attention: true };
  if (lock && lock.changed > 0) return { tone: 'wait', text: sourceWords.changedTools(lock.changed), attention: true };
  if (state === 'connecting') return { tone: 'run', text: sourceWords.connecting, attention: false };
  if (state === 'idle') return { tone: 'idle', text: sourceWords.idle, attention: false };
  return { tone: 'ok', text: age === undefined ? sourceWords.up : sourceWords.upSince(age), attention: false };
}

/** The class of the text of a state; others are soft. */
export const INKS: Partial<Record<SourceLook['tone'], string>> = { fail: 'fail-ink', wait: 'wait-ink', half: 'wait-ink' };

const ORDER: readonly SourceLook['tone'][] = ['fail', 'half', 'wait', 'run', 'ok', 'idle'];

/** Sources that need attention first, then by name. */
export function worstFirst(sources: readonly Source[], now: number): Source[] {
  const rank = (source: Source) => ORDER.indexOf(lookOf(source, now).tone);
  return [...sources].sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name));
}
