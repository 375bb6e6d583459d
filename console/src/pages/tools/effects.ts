/** How an effect and a verdict look: the colour, the icon and the word, wherever tools are shown. */

import { AskIcon, DangerIcon, DoneIcon, FailureIcon, ReadsIcon, SendsIcon, UnknownIcon, WritesIcon, type Icon } from '../../ui/icons';
import type { Tone } from '../../ui/tone';
import { toolWords, words } from '../../words';

interface Look {
  tone: Tone;
  icon: Icon;
  word: string;
}

interface Effects {
  side_effects: string;
  destructive: boolean | null;
}

/** The effect of a tool; a destructive one comes first. */
export function effectLook({ side_effects: effect, destructive }: Effects): Look {
  const word = words.effects[effect] ?? effect;
  if (destructive === true) return { tone: 'fail', icon: DangerIcon, word: effect === 'read' || effect === 'pure' ? (words.effects.destructive ?? word) : word };
  switch (effect) {
    case 'pure':
    case 'read':
      return { tone: 'ok', icon: ReadsIcon, word };
    case 'external':
      return { tone: 'run', icon: SendsIcon, word };
    case 'write':
    case 'stateful':
      return { tone: 'run', icon: WritesIcon, word };
    default:
      return { tone: 'wait', icon: UnknownIcon, word };
  }
}

export function verdictLook(action: 'allow' | 'ask' | 'deny'): Look {
  const word = toolWords.action[action] ?? action;
  switch (action) {
    case 'allow':
      return { tone: 'ok', icon: DoneIcon, word };
    case 'ask':
      return { tone: 'wait', icon: AskIcon, word };
    case 'deny':
      return { tone: 'fail', icon: FailureIcon, word };
  }
}
