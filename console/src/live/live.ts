/**
 * One stream of events for all tabs of a browser. The tab that holds a Web Lock reads it and forwards events; when it
 * closes, the next tab continues after the last event. Without locks (plain http from elsewhere) each tab has its own.
 */

import { useSyncExternalStore } from 'react';

import { BASE_PATH } from '../api/address';
import { requestTo, send } from '../api/client';
import type { Event } from '../api/types';
import { gatewayNow } from '../format/clock';
import { EventQueue } from './queue';
import { eventOf } from './events';
import { follow, type StreamState } from './stream';

export interface LiveState {
  stream: StreamState;
  /** When the stream came to its present state, on the gateway's clock. */
  since: number;
  /** Events that came and are not shown yet. */
  behind: number;
  lastId: string | undefined;
  /** Whether this tab reads the stream. */
  reads: boolean;
}

type Message = { kind: 'event'; event: Event } | { kind: 'state'; stream: StreamState } | { kind: 'ask' } | { kind: 'gap' };

const NAME = `toolpost-events${BASE_PATH}`;
const LISTEN_WAIT_MS = 1000;

const listeners = new Set<() => void>();
let state: LiveState = {
  stream: { kind: 'connecting' },
  since: gatewayNow(),
  behind: 0,
  lastId: undefined,
  reads: false,
};
/** Whether lists may be on the screen that events have kept fresh. */
let wasOpen = false;

export function liveState(): LiveState {
  return state;
}

export function useLive(): LiveState {
  return useSyncExternalStore(onLive, liveState);
}

export function onLive(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Whether events arrive, so that nothing has to be asked for again. */
export function isLive(): boolean {
  return state.stream.kind === 'open';
}

/** Until the stream is open, but at most a second: what is listed after that misses nothing. */
export async function listening(): Promise<void> {
  if (isLive()) return;
  await new Promise<void>((resolve) => {
    const timer = setTimeout(finish, LISTEN_WAIT_MS);
    const stop = onLive(() => {
      if (isLive()) finish();
    });
    function finish() {
      clearTimeout(timer);
      stop();
      resolve();
    }
  });
}

/**
 * Begin to listen for a session; `apply` gets events in batches, and `onGap` is called when the stream opened again with
 * no event to continue after, so that some may have been missed. Returns how to stop.
 */
export function startLive(apply: (events: Event[]) => void, onGap: () => void): () => void {
  const stopping = new AbortController();
  const channel = 'BroadcastChannel' in window ? new BroadcastChannel(NAME) : undefined;
  const queue = new EventQueue(apply, (behind) => change({ behind }));

  function take(event: Event) {
    change({ lastId: String(event.id) });
    queue.push(event);
  }
  function tell(message: Message) {
    channel?.postMessage(message);
  }

  channel?.addEventListener('message', ({ data }: MessageEvent<Message>) => {
    if (data.kind === 'event') take(data.event);
    else if (data.kind === 'state') changeStream(data.stream);
    else if (data.kind === 'gap') onGap();
    else if (state.reads) tell({ kind: 'state', stream: state.stream });
  });

  async function readStream() {
    change({ reads: true });
    await follow({
      open: (lastId, signal) => send(eventsRequest(lastId, signal)),
      lastId: state.lastId,
      signal: stopping.signal,
      onEvent(message) {
        const event = eventOf(message);
        if (!event) return;
        take(event);
        tell({ kind: 'event', event });
      },
      onState(stream) {
        const missed = stream.kind === 'open' && wasOpen && state.lastId === undefined;
        changeStream(stream);
        tell({ kind: 'state', stream });
        if (!missed) return;
        onGap();
        tell({ kind: 'gap' });
      },
    });
  }

  tell({ kind: 'ask' });
  void onceAlone(readStream, stopping.signal);
  return () => {
    stopping.abort();
    queue.stop();
    channel?.close();
    change({ reads: false, lastId: undefined });
  };
}

function eventsRequest(lastId: string | undefined, signal: AbortSignal): Request {
  const headers: HeadersInit = { Accept: 'text/event-stream' };
  if (lastId !== undefined) headers['Last-Event-ID'] = lastId;
  return requestTo('/api/v1/events', { headers, signal, cache: 'no-store' });
}

/** Run a task as the only tab of this browser, whenever it is this tab's turn. */
async function onceAlone(task: () => Promise<void>, signal: AbortSignal): Promise<void> {
  try {
    if ('locks' in navigator) await navigator.locks.request(NAME, { signal }, task);
    else await task();
  } catch {
    if (!signal.aborted) changeStream({ kind: 'waiting', at: Infinity, offline: true, stopping: false });
  }
}

function changeStream(stream: StreamState) {
  wasOpen ||= stream.kind === 'open';
  const since = stream.kind === state.stream.kind ? state.since : gatewayNow();
  change({ stream, since });
}

function change(part: Partial<LiveState>) {
  state = { ...state, ...part };
  for (const listener of listeners) listener();
}
