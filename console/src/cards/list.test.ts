import { describe, expect, it } from 'vitest';

import type { Me } from '../api/types';
import type { Card } from '../api/types';
import { byUrgency, filterCards } from './list';

const ME = { user: 'acme:ann', scopes: ['answer'], answers: ['*'], operator: false } as unknown as Me;
const card = (id: string, created: number, expires: number, more: Partial<Card> = {}) =>
  ({ id, created_at: created, expires_at: expires, kind: 'approval', tool_name: 'a.b', asked_by: 'acme:bot', answerers: null, ...more }) as Card;

describe('a list of cards', () => {
  it('begins with what expires within an hour, then the oldest', () => {
    const cards = [card('new', 90, 99_999), card('old', 10, 99_999), card('soon', 95, 2000), card('sooner', 96, 1000)];
    expect(cards.toSorted(byUrgency(100)).map((one) => one.id)).toEqual(['sooner', 'soon', 'old', 'new']);
  });

  it('is narrowed by tool, kind, asker and who may answer', () => {
    const cards = [
      card('1', 0, 0),
      card('2', 0, 0, { tool_name: 'c.d' }),
      card('3', 0, 0, { kind: 'input' }),
      card('4', 0, 0, { asked_by: 'acme:ann' }),
    ];
    const ids = (filter: object) => filterCards(cards, filter, ME).map((one) => one.id);
    expect(ids({ tool: 'c.*' })).toEqual(['2']);
    expect(ids({ kind: 'input' })).toEqual(['3']);
    expect(ids({ by: 'acme:ann' })).toEqual(['4']);
    expect(ids({ mine: true })).toEqual(['1', '2', '3']);
  });
});
