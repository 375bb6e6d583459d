import { describe, expect, it } from 'vitest';

import type { Source } from '../../api/types';
import { lookOf, worstFirst } from './state';

const NOW = 1000;
const up: Source = {
  name: 'up', transport: 'mcp', ok: true, tools: 1, error: null, state: 'up', description: '', target: '', runs_code: false,
  trust: false, required: false, enabled: true, auth_type: 'none', service: null, declared: true, since: NOW - 120,
  last_error_at: null, failures: 0, next_try_at: null, breaker: { state: 'closed', retry_in_s: null }, lock: null, problems: [],
  calls_1h: 0, p95_ms: null,
};
const lock = { pinned: 3, changed: 2, new: 0, gone: 0, written_at: null };

describe('a source', () => {
  it.each<[Partial<Source>, string, boolean]>([
    [{}, 'up 2 min', false],
    [{ since: null }, 'up', false],
    [{ state: 'down', since: NOW - 360 }, 'down for 6 min', true],
    [{ breaker: { state: 'open', retry_in_s: 12 } }, 'circuit breaker open, 12 s', true],
    [{ lock }, '2 tools changed', true],
    [{ lock: { ...lock, changed: 0 } }, 'up 2 min', false],
    [{ state: 'connecting' }, 'connecting', false],
    [{ state: 'disabled', lock }, 'disabled', false],
  ])('%j is %j', (change, text, attention) => {
    expect(lookOf({ ...up, ...change }, NOW)).toMatchObject({ text, attention });
  });

  it('that needs attention comes first', () => {
    const sources = [up, { ...up, name: 'changed', lock }, { ...up, name: 'off', state: 'disabled' as const }, { ...up, name: 'down', state: 'down' as const }];
    expect(worstFirst(sources, NOW).map((source) => source.name)).toEqual(['down', 'changed', 'up', 'off']);
  });
});
