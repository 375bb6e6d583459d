/** The calls of a run as steps, up to the call of a card. */

import type { Card, Event } from '../../api/types';
import { formatDuration } from '../../format/time';
import { numberOf, textOf } from '../../live/events';

export interface CallStep {
  callId: string;
  tool: string;
  state: 'completed' | 'failed' | 'waits' | 'runs';
  note: string;
}

export function callsBefore(log: readonly Event[], card: Card): CallStep[] {
  const steps = new Map<string, CallStep>();
  for (const event of log) {
    const tool = textOf(event, 'tool_name');
    if (event.type === 'TOOL_CALL_REQUESTED') steps.set(event.call_id, { callId: event.call_id, tool, state: 'runs', note: '' });
    const step = steps.get(event.call_id);
    if (!step) continue;
    if (event.type === 'TOOL_CALL_COMPLETED') Object.assign(step, { state: 'completed', note: took(event) });
    if (event.type === 'TOOL_CALL_FAILED') Object.assign(step, { state: 'failed', note: textOf(event, 'error_code') });
    if (textOf(event, 'pending_id') === card.id && card.status === 'open') step.state = 'waits';
  }
  return [...steps.values()];
}

function took(event: Event): string {
  const duration = numberOf(event, 'duration_ms');
  return duration === undefined ? '' : formatDuration(duration);
}
