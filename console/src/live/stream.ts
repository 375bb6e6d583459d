/** The gateway's events as one endless stream: connected again after every end, from the last event on. */

import { Problem } from '../api/problem';
import { gatewayNow } from '../format/clock';
import { readEvents, type ServerEvent } from './sse';

export type StreamState =
  | { kind: 'connecting' }
  | { kind: 'open' }
  /** `at` is when it connects again, in milliseconds on the gateway's clock; `stopping` is what the gateway said of itself. */
  | { kind: 'waiting'; at: number; offline: boolean; stopping: boolean };

export interface StreamOptions {
  /** Opens the stream after an event, or from now on. */
  open: (lastId: string | undefined, signal: AbortSignal) => Promise<Response>;
  lastId: string | undefined;
  onEvent: (event: ServerEvent) => void;
  onState: (state: StreamState) => void;
  signal: AbortSignal;
}

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15_000;
/** Nothing for so long means that the connection is dead: the gateway sends a comment more often. */
const SILENCE_MS = 60_000;

/** Read events until `signal`, or until a problem that another try does not mend. */
export async function follow({ open, lastId, onEvent, onState, signal }: StreamOptions): Promise<void> {
  let last = lastId;
  let failures = 0;
  const stopped = () => signal.aborted;
  while (!stopped()) {
    let retryAfter: number | undefined;
    let stopping = false;
    try {
      onState({ kind: 'connecting' });
      const response = await open(last, signal);
      onState({ kind: 'open' });
      failures = 0;
      for await (const event of readEvents(withoutSilence(response))) {
        last = event.id || last;
        onEvent(event);
      }
    } catch (error) {
      if (stopped()) return;
      const problem = Problem.of(error);
      if (problem.status === 401 || problem.status === 403) throw problem;
      retryAfter = problem.retryAfter;
      stopping = problem.code === 'stopping';
    }
    if (stopped()) return;
    const wait = retryAfter === undefined ? waitOf(failures) : retryAfter * 1000;
    failures += 1;
    onState({ kind: 'waiting', at: gatewayNow() * 1000 + wait, offline: failures > 3, stopping });
    await pause(wait, signal);
  }
}

/** Half a second at first, twice as long each time up to 15 s, with a random part so that tabs do not come together. */
export function waitOf(failures: number, random: () => number = Math.random): number {
  const longest = Math.min(FIRST_WAIT_MS * 2 ** failures, LONGEST_WAIT_MS);
  return longest * (0.5 + random() / 2);
}

async function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  await new Promise<void>((resolve) => {
    const done = () => {
      clearTimeout(timer);
      window.removeEventListener('online', done);
      signal.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    window.addEventListener('online', done);
    signal.addEventListener('abort', done);
  });
}

/** The response, ended when nothing came for a minute. */
function withoutSilence(response: Response): Response {
  if (!response.body) return response;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const watched = response.body.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      start: (controller) => arm(controller),
      transform(chunk, controller) {
        arm(controller);
        controller.enqueue(chunk);
      },
      flush: () => clearTimeout(timer),
    }),
  );
  function arm(controller: TransformStreamDefaultController<Uint8Array>) {
    clearTimeout(timer);
    timer = setTimeout(() => controller.terminate(), SILENCE_MS);
  }
  return new Response(watched);
}
