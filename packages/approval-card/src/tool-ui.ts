/** A pending action in the shape that the approval card of tool-ui (assistant-ui) takes. */

import { gistOf } from './card/gist';
import { isDefinitionChange } from './card/kinds';
import { isoTime } from './format/time';
import type { PendingAction } from './types';
import { cut, visible } from './ui/foreign-text';
import { words } from './words';

export interface ToolUiApproval {
  id: string;
  role: 'decision';
  title: string;
  description?: string;
  /** The name of a lucide icon. */
  icon: string;
  metadata: { key: string; value: string }[];
  variant: 'default' | 'destructive';
  confirmLabel: string;
  cancelLabel: string;
  /** Of an action that is closed; an expired or withdrawn one counts as denied. */
  choice?: 'approved' | 'denied';
}

const LONGEST = 300;
const MOST_ARGUMENTS = 20;
const ICONS: Record<string, string> = { diff: 'file-diff', http_request: 'send', command: 'terminal' };

/**
 * The payload of an approval; undefined for other kinds, which have other answers than yes and no. Foreign text is cut,
 * and its hidden characters are shown by their number.
 */
export function toolUiPayload(action: PendingAction): ToolUiApproval | undefined {
  if (action.kind !== 'approval') return undefined;
  const changed = isDefinitionChange(action);
  const choice = choiceOf(action);
  return {
    id: action.id,
    role: 'decision',
    title: shown(action.tool_name),
    ...(action.prompt !== '' && { description: shown(action.prompt) }),
    icon: changed ? 'shield-alert' : (ICONS[action.preview?.kind ?? ''] ?? 'hand'),
    metadata: metadataOf(action),
    variant: action.tool?.destructive === true ? 'destructive' : 'default',
    confirmLabel: changed ? words.cards.acceptAndRun : words.cards.approve,
    cancelLabel: words.cards.deny,
    ...(choice && { choice }),
  };
}

function metadataOf(action: PendingAction): ToolUiApproval['metadata'] {
  const { taint = [] } = action;
  const values = Object.entries(action.arguments);
  const rows: [string, string][] = [
    [words.cards.asker, action.caller?.name ?? action.asked_by],
    ...previewRows(action),
    ...taint.map(({ tool, origin }): [string, string] => [words.cards.untrusted, words.cards.untrustedFrom(tool, origin)]),
    ...values.slice(0, MOST_ARGUMENTS).map(([name, value]): [string, string] => [name, valueText(action, name, value)]),
  ];
  if (values.length > MOST_ARGUMENTS) rows.push([words.cards.tabs.arguments, words.cards.moreArguments(values.length - MOST_ARGUMENTS)]);
  if (action.status === 'open') rows.push([words.cards.expiresAt, isoTime(action.expires_at)]);
  return rows.map(([key, value]) => ({ key: shown(key), value: shown(value) }));
}

function previewRows(action: PendingAction): [string, string][] {
  const { preview } = action;
  if (preview?.kind === 'http_request') return [[words.cards.wouldSend, requestLine(preview)]];
  if (preview?.kind === 'command') return [[words.cards.wouldRun, preview.argv?.join(' ') ?? preview.text]];
  if (preview?.kind !== 'diff') return [];
  const { path = '', added = 0, removed = 0 } = gistOf(action);
  return [[words.cards.wouldChange, `${path} +${added} −${removed}`]];
}

function requestLine({ method, url, text }: NonNullable<PendingAction['preview']>): string {
  return method !== undefined && url !== undefined ? `${method} ${url}` : text;
}

function valueText(action: PendingAction, name: string, value: unknown): string {
  if (action.masked.includes(`/${name}`)) return `•••••••• ${words.cards.masked}`;
  return typeof value === 'string' ? value : JSON.stringify(value);
}

function choiceOf({ status }: PendingAction): ToolUiApproval['choice'] {
  if (status === 'open' || status === 'claimed') return undefined;
  return status === 'answered' ? 'approved' : 'denied';
}

/** One readable line: never empty, because tool-ui refuses empty names. */
function shown(text: string): string {
  const { shown: start, leftOut } = cut(text, LONGEST);
  return visible(start) + (leftOut > 0 ? '…' : '') || '–';
}
