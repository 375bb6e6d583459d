import { describe, expect, it } from 'vitest';

import type { Event } from '../../api/types';
import { words } from '../../words';
import { matches, typeOptions } from './filters';

const EVENT: Event = {
  id: 7,
  run_id: 'run_1',
  seq: 1,
  code: 410,
  type: 'TOOL_CALL_COMPLETED',
  at: 1000,
  call_id: 'call_1',
  tenant: 'acme',
  user: 'acme:ann',
  payload: { tool_name: 'crm.get_contact' },
  hash: 'ab',
};

describe('an event', () => {
  it.each([
    [{}, true],
    [{ type: 'APPROVAL_*,TOOL_CALL_*' }, true],
    [{ type: 'TOOL_CALL_FAILED' }, false],
    [{ tool: 'crm.*' }, true],
    [{ tool: 'crm' }, false],
    [{ tool: 'crmxget_contact' }, false],
    [{ user: 'acme:bob' }, false],
    [{ run: 'run_1', since: 999, until: 1001 }, true],
    [{ since: 1001 }, false],
    [{ until: 999 }, false],
  ])('matches %j: %s', (filters, expected) => {
    expect(matches(EVENT, filters)).toBe(expected);
  });
});

describe('the choice of types', () => {
  it('has every known type in exactly one group', () => {
    const groups = typeOptions(undefined).filter(({ value }) => value.includes('*') || value.includes(','));
    for (const type of Object.keys(words.events)) {
      const of = groups.filter(({ value }) => matches({ ...EVENT, type }, { type: value }));
      expect([type, of.length]).toEqual([type, 1]);
    }
  });

  it('keeps a pattern of the address that it does not list', () => {
    expect(typeOptions('TASK_F*').at(-1)).toEqual({ value: 'TASK_F*', label: 'TASK_F*' });
  });
});
