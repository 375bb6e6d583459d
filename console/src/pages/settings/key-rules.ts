/** Which scopes a key can have: one that can call has no other, unless it is a person's. */

import type { CallerKey } from '../../api/types';

export type Scope = CallerKey['scopes'][number];

const ALONE: Scope = 'call';

/** The scopes after one of them was chosen or left out. */
export function withScope(scopes: readonly Scope[], scope: Scope, isOn: boolean, isPerson: boolean): Scope[] {
  const others = scopes.filter((one) => one !== scope);
  if (!isOn) return others;
  return [...others.filter((one) => isPerson || (scope !== ALONE && one !== ALONE)), scope];
}

/** The scopes of a key that becomes a person's, or stops being one. */
export function scopesFor(isPerson: boolean, scopes: readonly Scope[]): Scope[] {
  return !isPerson && scopes.includes(ALONE) ? [ALONE] : [...scopes];
}
