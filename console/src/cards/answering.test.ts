import { describe, expect, it } from 'vitest';

import type { Me } from '../api/types';
import type { Card } from '../api/types';
import { fits, mayAnswer, whyNot } from './answering';

const ANN = { user: 'acme:ann', scopes: ['answer'], answers: ['*'], operator: false } as unknown as Me;
const CARD = { kind: 'approval', tool_name: 'billing.refund', asked_by: 'acme:bot', answerers: null } as Card;

describe('who may answer', () => {
  it('is anybody with the scope', () => {
    expect(whyNot(CARD, ANN)).toBeUndefined();
    expect(whyNot(CARD, { ...ANN, scopes: ['call'] })).toBe('no_scope');
  });

  it('is limited to the tools of the key', () => {
    expect(whyNot(CARD, { ...ANN, answers: ['billing.*'] })).toBeUndefined();
    expect(whyNot(CARD, { ...ANN, answers: ['mail.*'] })).toBe('no_scope');
  });

  it('is limited to who is named', () => {
    expect(whyNot({ ...CARD, answerers: ['acme:treasury-*', 'acme:ann'] }, ANN)).toBeUndefined();
    expect(whyNot({ ...CARD, answerers: ['acme:treasury-*'] }, ANN)).toBe('not_named');
  });

  it('is never who asked, unless that is the operator', () => {
    const own = { ...CARD, asked_by: 'acme:ann' };
    expect(whyNot(own, ANN)).toBe('own_call');
    expect(whyNot(own, { ...ANN, operator: true })).toBeUndefined();
    expect(whyNot({ ...own, four_eyes: true }, { ...ANN, operator: true })).toBe('own_call');
  });

  it('is the operator for a changed definition', () => {
    expect(whyNot({ ...CARD, waits_for: 'operator' }, ANN)).toBe('operator_only');
  });

  it('is what the gateway says, where it does', () => {
    expect(mayAnswer({ ...CARD, viewer: { may: [], why_not: 'no' } }, ANN)).toBe(false);
    expect(mayAnswer({ ...CARD, asked_by: 'acme:ann', viewer: { may: ['approve'], why_not: null } }, ANN)).toBe(true);
  });
});

describe('a pattern', () => {
  it('takes dots as they are', () => {
    expect(fits('a.b', 'a.*')).toBe(true);
    expect(fits('axb', 'a.b')).toBe(false);
  });
});
