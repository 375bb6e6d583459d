/** How the kinds of pending actions look: icon, colour and words. */

import type { PendingAction } from '../types';
import {
  AccountIcon,
  AgainIcon,
  AskIcon,
  CommandIcon,
  FileIcon,
  QuestionIcon,
  RuleIcon,
  SendsIcon,
  UnknownIcon,
  type Icon,
} from '../icons';
import type { Tone } from '../ui/tone';
import { words } from '../words';

export interface CardLook {
  icon: Icon;
  tone: Tone;
  label: string;
}

const KINDS: Record<PendingAction['kind'], CardLook> = {
  approval: { icon: AskIcon, tone: 'wait', label: words.cards.kinds.approval },
  input: { icon: QuestionIcon, tone: 'wait', label: words.cards.kinds.input },
  consent: { icon: AccountIcon, tone: 'run', label: words.cards.kinds.consent },
  unknown: { icon: UnknownIcon, tone: 'fail', label: words.cards.kinds.unknown },
  restart: { icon: AgainIcon, tone: 'idle', label: words.cards.kinds.restart },
};
const CHANGED: CardLook = { icon: RuleIcon, tone: 'wait', label: words.cards.kinds.definition_changed };
const PREVIEWS: Record<string, Icon> = { diff: FileIcon, http_request: SendsIcon, command: CommandIcon };

export function isDefinitionChange(action: PendingAction): boolean {
  return action.kind === 'approval' && action.reason === 'definition_changed';
}

export function lookOf(action: PendingAction): CardLook {
  return isDefinitionChange(action) ? CHANGED : KINDS[action.kind];
}

/** In a list, an approval has the icon of what it would do. */
export function rowIcon(action: PendingAction): Icon {
  return (action.kind === 'approval' && PREVIEWS[action.preview?.kind ?? '']) || lookOf(action).icon;
}

/** The service of a consent, as people know it. */
export function serviceOf(action: PendingAction): string {
  const { display_name: name, provider } = action.payload;
  if (typeof name === 'string' && name !== '') return name;
  return typeof provider === 'string' ? provider : action.tool_name;
}

/** The name of a user without the tenant. */
export function shortUser(user: string): string {
  return user.slice(user.indexOf(':') + 1);
}
