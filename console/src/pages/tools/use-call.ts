/** One call of a tool, with its progress as it happens and its outcome. */

import { useEffect, useRef, useState } from 'react';

import { requestTo, send } from '../../api/client';
import { Problem } from '../../api/problem';
import type { Event, Outcome } from '../../api/types';
import { eventOf, numberOf, textOf } from '../../live/events';
import { readEvents } from '../../live/sse';

export interface Progress {
  text: string;
  fraction: number | undefined;
}

export type CallState =
  | { state: 'idle' }
  | { state: 'running'; began: number; runId: string | undefined; progress: Progress | undefined }
  | { state: 'ended'; outcome: Outcome }
  | { state: 'refused'; problem: Problem };

interface CallHook {
  call: CallState;
  /** Call with these arguments, as JSON text. */
  start: (argumentsText: string) => void;
  /** Let the next call be a new one, even with the same arguments. */
  renew: () => void;
}

/** Calls of one tool. The same arguments have the same idempotency key, so calling twice runs once. */
export function useCall(tool: string): CallHook {
  const [call, setCall] = useState<CallState>({ state: 'idle' });
  const key = useRef({ text: '', key: '' });
  const leaving = useRef<AbortController>(undefined);
  useEffect(() => () => leaving.current?.abort(), []);

  async function run(argumentsText: string) {
    if (key.current.text !== argumentsText) key.current = { text: argumentsText, key: newKey() };
    leaving.current?.abort();
    const controller = new AbortController();
    leaving.current = controller;
    const began = performance.now();
    setCall({ state: 'running', began, runId: undefined, progress: undefined });
    const update = (event: Event) =>
      setCall((now) => (now.state === 'running' ? { ...now, runId: event.run_id, progress: progressOf(event) ?? now.progress } : now));
    try {
      const outcome = await streamCall(tool, argumentsText, key.current.key, controller.signal, update);
      setCall({ state: 'ended', outcome });
    } catch (error) {
      if (!controller.signal.aborted) setCall({ state: 'refused', problem: Problem.of(error) });
    }
  }
  function renew() {
    key.current = { text: '', key: '' };
    setCall({ state: 'idle' });
  }
  return { call, start: (text) => void run(text), renew };
}

async function streamCall(tool: string, argumentsText: string, key: string, signal: AbortSignal, onEvent: (event: Event) => void): Promise<Outcome> {
  const response = await send(
    requestTo('/api/v1/calls', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', 'Idempotency-Key': key },
      body: `{"tool":${JSON.stringify(tool)},"arguments":${argumentsText},"mode":"stream"}`,
      signal,
    }),
  );
  for await (const message of readEvents(response)) {
    if (message.type === 'outcome') return JSON.parse(message.data) as Outcome;
    const event = eventOf(message);
    if (event) onEvent(event);
  }
  throw new TypeError('the stream ended without an outcome');
}

function progressOf(event: Event): Progress | undefined {
  return event.type === 'SUBAGENT_ACTION' ? { text: textOf(event, 'text'), fraction: numberOf(event, 'fraction') } : undefined;
}

/** Random and unguessable, also outside of a secure context. */
function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `console-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')}`;
}
