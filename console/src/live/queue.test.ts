import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import type { Event } from '../api/types';
import { EventQueue } from './queue';

function event(id: number): Event {
  return { id, type: 'SOURCE_UP', run_id: '', seq: 0, code: 481, at: 0, call_id: '', tenant: '', user: '', payload: {}, hash: '' };
}

describe('events on their way to the screen', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it('are applied together, at most 200 at once, and those behind are counted', () => {
    const batches: number[] = [];
    const behind: number[] = [];
    const queue = new EventQueue(
      (events) => batches.push(events.length),
      (count) => behind.push(count),
    );
    for (let id = 0; id < 450; id += 1) queue.push(event(id));
    vi.runAllTimers();

    expect(batches).toEqual([200, 200, 50]);
    expect(behind).toEqual([250, 50, 0]);
  });

  it('are applied four times a second when many come', () => {
    let times = 0;
    const queue = new EventQueue(
      () => (times += 1),
      () => undefined,
    );
    for (let tick = 0; tick < 1000; tick += 5) {
      queue.push(event(tick));
      vi.advanceTimersByTime(5);
    }

    expect(times).toBeLessThan(25);
  });

  it('are forgotten when it stops', () => {
    const apply = vi.fn();
    const queue = new EventQueue(apply, () => undefined);
    queue.push(event(1));
    queue.stop();
    vi.runAllTimers();

    expect(apply).not.toHaveBeenCalled();
  });
});
