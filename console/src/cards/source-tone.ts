import type { Source } from '../api/types';
import type { Tone } from '../ui/tone';

/** The colour of a source's state. */
export const SOURCE_TONE: Record<Source['state'], Tone> = {
  up: 'ok',
  connecting: 'wait',
  down: 'fail',
  idle: 'idle',
  disabled: 'idle',
};
