import { describe, expect, it } from 'vitest';

import { isFor, scopesFor, withScope, type Scope } from './key-rules';

describe('the scopes of a key', () => {
  it.each<[Scope[], Scope, boolean, Scope[]]>([
    [['call'], 'answer', true, ['answer']],
    [['answer', 'admin'], 'call', true, ['call']],
    [['answer'], 'admin', true, ['answer', 'admin']],
    [['answer', 'admin'], 'admin', false, ['answer']],
    [['call'], 'call', false, []],
    [['answer', 'admin'], 'observe', true, ['observe']],
    [['observe'], 'admin', true, ['admin']],
  ])('of an agent or a program: %j and %s %s is %j', (scopes, scope, isOn, expected) => {
    expect(withScope(scopes, scope, isOn, false)).toEqual(expected);
  });

  it('can be all for a person', () => {
    expect(withScope(withScope(['call'], 'answer', true, true), 'admin', true, true)).toEqual(['call', 'answer', 'admin']);
  });

  it('are only call again when a key that can call is no longer for a person', () => {
    expect(scopesFor(false, ['answer', 'call'])).toEqual(['call']);
    expect(scopesFor(false, ['answer', 'admin'])).toEqual(['answer', 'admin']);
    expect(scopesFor(true, ['call'])).toEqual(['call']);
  });

  it('are never observe for a person', () => {
    expect(scopesFor(true, ['observe'])).toEqual(['call']);
    expect(isFor(true, 'observe')).toBe(false);
    expect(isFor(false, 'observe')).toBe(true);
  });
});
