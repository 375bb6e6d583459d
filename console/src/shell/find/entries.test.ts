import { describe, expect, it } from 'vitest';

import type { Card, Run, Source } from '../../api/types';
import { findEntries, lastFound, rememberFound } from './entries';

const KNOWN = {
  cards: [{ id: 'ask_1', tool_name: 'billing.refund', asked_by: 'acme:bot', kind: 'approval' } as Card],
  runs: [{ run_id: 'run_1', tool_name: 'billing.get_order', status: 'completed' } as Run],
  sources: [{ name: 'billing', state: 'up' } as Source],
};
const paths = (text: string) => findEntries(text, KNOWN).flatMap((group) => group.entries.map((entry) => entry.path));

describe('the search', () => {
  it('goes straight to an id', () => {
    expect(paths('run_52c1a')).toContain('/runs/run_52c1a');
    expect(paths('ask_7f3a')[0]).toBe('/approvals/ask_7f3a');
  });

  it('finds pages, questions, runs and sources by a part of their names', () => {
    expect(paths('billing')).toEqual(['/approvals/ask_1', '/runs/run_1', '/sources/billing']);
    expect(paths('insi')).toEqual(['/insight']);
  });

  it('keeps the last five that were opened', () => {
    for (const name of ['a', 'b', 'c', 'd', 'e', 'f', 'b']) {
      rememberFound({ path: `/tools/${name}`, label: name, icon: () => null } as never);
    }
    expect(lastFound().map((entry) => entry.label)).toEqual(['b', 'f', 'e', 'd', 'c']);
  });
});
