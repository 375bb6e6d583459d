import { QueryClient } from '@tanstack/react-query';
import { beforeEach, describe, expect, it, vi } from 'vitest';

import { keys } from '../api/queries';
import type { Card, Event, Run } from '../api/types';
import { applyEvents, applyGap } from './apply';
import { recentEvents } from './recent';

const CARD = { id: 'ask_1', status: 'open', tool_name: 'send_mail' } as Card;
const EVENT: Event = {
  id: 1,
  run_id: '',
  seq: 1,
  code: 0,
  type: '',
  at: 100,
  call_id: '',
  tenant: 'acme',
  user: 'ann',
  payload: {},
  hash: '',
};

let cache: QueryClient;
beforeEach(() => {
  cache = new QueryClient();
});

const asked = { ...EVENT, type: 'APPROVAL_REQUESTED', card: CARD };
const answered = { ...EVENT, id: 2, type: 'APPROVAL_GRANTED', payload: { pending_id: 'ask_1' } };

describe('events and the cache', () => {
  it('put a question into the open list, once', () => {
    cache.setQueryData(keys.openCards, []);
    applyEvents(cache, [asked, asked]);

    expect(cache.getQueryData(keys.openCards)).toEqual([CARD]);
    expect(cache.getQueryData(keys.card('ask_1'))).toEqual(CARD);
  });

  it('do not make a list that was never fetched', () => {
    applyEvents(cache, [asked]);

    expect(cache.getQueryData(keys.openCards)).toBeUndefined();
  });

  it('take an answered question out of the open list, and have its card fetched again', () => {
    cache.setQueryData(keys.openCards, [CARD]);
    cache.setQueryData(keys.card('ask_1'), CARD);
    applyEvents(cache, [answered]);

    expect(cache.getQueryData(keys.openCards)).toEqual([]);
    expect(cache.getQueryState(keys.card('ask_1'))?.isInvalidated).toBe(true);
  });

  it('add to the log of a run in its order, once', () => {
    cache.setQueryData(keys.run('run_1'), { run_id: 'run_1', log: [{ ...EVENT, id: 5, seq: 2 }] });
    const first = { ...EVENT, id: 4, seq: 1, run_id: 'run_1', type: 'TOOL_CALL_REQUESTED' };
    applyEvents(cache, [first, first]);

    expect(cache.getQueryData<Run>(keys.run('run_1'))?.log?.map((event) => event.id)).toEqual([4, 5]);
  });

  it('have a run fetched again a second after one of its calls has ended', () => {
    vi.useFakeTimers();
    cache.setQueryData(keys.run('run_2'), { run_id: 'run_2', status: 'paused', log: [] });
    applyEvents(cache, [{ ...EVENT, run_id: 'run_2', type: 'TOOL_CALL_COMPLETED' }]);
    vi.advanceTimersByTime(1000);
    vi.useRealTimers();

    expect(cache.getQueryState(keys.run('run_2'))?.isInvalidated).toBe(true);
  });

  it('mark sources as old when one goes down', () => {
    cache.setQueryData(keys.sources, []);
    applyEvents(cache, [{ ...EVENT, type: 'SOURCE_DOWN' }]);

    expect(cache.getQueryState(keys.sources)?.isInvalidated).toBe(true);
  });

  it('that may have been missed make everything old that they keep fresh', () => {
    cache.setQueryData(keys.openCards, [CARD]);
    cache.setQueryData(keys.run('run_1'), { run_id: 'run_1' });
    cache.setQueryData(keys.about, {});
    applyGap(cache);

    expect(cache.getQueryState(keys.openCards)?.isInvalidated).toBe(true);
    expect(cache.getQueryState(keys.run('run_1'))?.isInvalidated).toBe(true);
    expect(cache.getQueryState(keys.about)?.isInvalidated).toBe(false);
  });

  it('are remembered newest first, each once', () => {
    applyEvents(cache, [{ ...EVENT, id: 901 }, { ...EVENT, id: 902 }]);
    applyEvents(cache, [{ ...EVENT, id: 902 }, { ...EVENT, id: 903 }]);

    expect(recentEvents().slice(0, 3).map((event) => event.id)).toEqual([903, 902, 901]);
  });
});
