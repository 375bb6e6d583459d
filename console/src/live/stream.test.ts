import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { Problem } from '../api/problem';
import { follow, waitOf, type StreamState } from './stream';

function answer(text: string): Response {
  return new Response(new Blob([text]).stream());
}

/** Follow a gateway that gives these answers one after the other; a problem is thrown. */
async function followed(answers: (Response | Problem)[], lastId?: string) {
  const stopping = new AbortController();
  const asked: (string | undefined)[] = [];
  const events: string[] = [];
  const states: StreamState[] = [];
  const following = follow({
    open: (last) => {
      asked.push(last);
      const next = answers.shift();
      if (answers.length === 0) stopping.abort();
      return next instanceof Response ? Promise.resolve(next) : Promise.reject(next ?? new Error('no answer left'));
    },
    lastId,
    onEvent: (event) => events.push(event.data),
    onState: (state) => states.push(state),
    signal: stopping.signal,
  });
  await Promise.all([vi.runAllTimersAsync(), following]);
  return { asked, events, states: states.map((state) => state.kind) };
}

beforeEach(() => void vi.useFakeTimers({ now: 0 }));
afterEach(() => void vi.useRealTimers());

describe('a connection that ends', () => {
  it('is opened again after the last event', async () => {
    const seen = await followed([answer('id: 5\ndata: a\n\n'), answer('id: 6\ndata: b\n\n'), answer('')]);

    expect(seen.asked).toEqual([undefined, '5', '6']);
    expect(seen.events).toEqual(['a', 'b']);
    expect(seen.states.slice(0, 4)).toEqual(['connecting', 'open', 'waiting', 'connecting']);
  });

  it('begins where another tab was', async () => {
    const seen = await followed([answer('')], '41');

    expect(seen.asked).toEqual(['41']);
  });

  it('waits as long as the gateway says', async () => {
    const busy = new Problem({ status: 429, code: 'too_many', detail: 'wait', retryAfter: 7 });
    await followed([busy, answer('')]);
    const waited = Date.now();

    expect(waited).toBe(7000);
  });

  it('is not opened again without permission', async () => {
    const refused = new Problem({ status: 403, code: 'insufficient_scope', detail: 'no' });
    await expect(followed([refused, answer('')])).rejects.toBe(refused);
  });
});

describe('the wait between two tries', () => {
  it('is longer each time, and never more than 15 s', () => {
    expect([0, 1, 2, 5, 30].map((failures) => waitOf(failures, () => 1))).toEqual([500, 1000, 2000, 15_000, 15_000]);
  });

  it('differs by up to a half', () => {
    expect(waitOf(1, () => 0)).toBe(500);
  });
});
