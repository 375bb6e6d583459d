/** Which scopes a key can have: one that observes has no other, nor one that can call, unless it is a person's. */

import type { CallerKey } from '../../api/types';

export type Scope = CallerKey['scopes'][number];

const CALL: Scope = 'call';
const OBSERVE: Scope = 'observe';

/** The scopes after one of them was chosen or left out. */
export function withScope(scopes: readonly Scope[], scope: Scope, isOn: boolean, isPerson: boolean): Scope[] {
  const others = scopes.filter((one) => one !== scope);
  if (!isOn) return others;
  return [...others.filter((one) => goTogether(one, scope, isPerson)), scope];
}

/** The scopes of a key that becomes a person's, or stops being one. */
export function scopesFor(isPerson: boolean, scopes: readonly Scope[]): Scope[] {
  if (isPerson) return scopes.includes(OBSERVE) ? [CALL] : [...scopes];
  return scopes.includes(CALL) ? [CALL] : [...scopes];
}

/** Whether a key can have a scope. */
export function isFor(isPerson: boolean, scope: Scope): boolean {
  return !isPerson || scope !== OBSERVE;
}

function goTogether(one: Scope, other: Scope, isPerson: boolean): boolean {
  const both = [one, other];
  return !both.includes(OBSERVE) && (isPerson || !both.includes(CALL));
}
