/** What an event says, in one line: the tool, and what matters of its payload. Texts of the payload are foreign. */

import type { Event } from '../api/types';
import { formatDuration } from '../format/time';
import { fromPlain, isObject, stringify } from '../schema/json';
import { words } from '../words';
import { numberOf, textOf } from './events';

const LONGEST_VALUE = 40;
const SHOWN_VALUES = 4;

export function summaryOf(event: Event): string {
  return [textOf(event, 'tool_name') || textOf(event, 'source') || textOf(event, 'tool'), detailOf(event)].filter(Boolean).join(' · ');
}

/** What matters of the payload, without what the event is about. */
export function detailOf(event: Event): string {
  const { payload } = event;
  switch (event.type) {
    case 'TOOL_CALL_REQUESTED':
      return valuesOf(payload.params);
    case 'TOOL_CALL_STARTED':
      return valuesOf(payload.input);
    case 'TOOL_CALL_COMPLETED':
      return joined(valuesOf(payload.summary), took(event));
    case 'TOOL_CALL_FAILED':
      return joined(textOf(event, 'error_code'), textOf(event, 'error_message'), took(event));
    case 'CALL_RETRIED':
      return joined(textOf(event, 'error_code'), words.retriesIn(formatDuration((numberOf(event, 'wait_s') ?? 0) * 1000)));
    case 'APPROVAL_REQUESTED':
    case 'CALL_PAUSED':
      return textOf(event, 'prompt');
    case 'APPROVAL_GRANTED':
    case 'APPROVAL_DENIED':
    case 'CALL_RESUMED':
      return joined(textOf(event, 'by'), textOf(event, 'decision'), textOf(event, 'reason'));
    case 'ARTIFACT_STORED':
      return joined(textOf(event, 'media_type'), textOf(event, 'artifact_id'));
    default:
      return joined(...['state', 'change', 'detail', 'text', 'reason', 'name', 'user', 'by'].map((name) => textOf(event, name)));
  }
}

function took(event: Event): string {
  const ms = numberOf(event, 'duration_ms');
  return ms === undefined ? '' : formatDuration(ms);
}

/** The first values of an object, the shortest way; other values as JSON. */
function valuesOf(value: unknown): string {
  const json = fromPlain(value ?? null);
  if (json === null) return '';
  if (!isObject(json)) return shortened(typeof json === 'string' ? json : stringify(json));
  const entries = Object.entries(json).slice(0, SHOWN_VALUES);
  return entries.map(([name, one]) => `${name} ${shortened(typeof one === 'string' ? one : stringify(one))}`).join(', ');
}

function shortened(text: string): string {
  return text.length > LONGEST_VALUE ? `${text.slice(0, LONGEST_VALUE - 1)}…` : text;
}

function joined(...parts: string[]): string {
  return parts.filter((part) => part !== '').join(', ');
}
