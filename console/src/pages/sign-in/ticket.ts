/** The ticket that the address brought: redeemed once, with a question if someone else is signed in. */

import { useSyncExternalStore } from 'react';

import { arrivedTicket } from '../../api/arrival';
import { sendAs } from '../../api/client';
import { Problem } from '../../api/problem';
import type { OpenedSession } from '../../api/types';
import { keepSession, session } from '../../api/session';
import { wasStartedHere } from './issuer';

export type TicketState =
  | { state: 'none' }
  | { state: 'redeeming' }
  /** Someone else is signed in, or another browser began this sign-in; `opened` is used only if the person says so (login CSRF). */
  | { state: 'confirm'; opened: OpenedSession }
  | { state: 'failed'; problem: Problem };

const listeners = new Set<() => void>();
let current: TicketState = { state: 'none' };

export function useArrivedTicket(): TicketState {
  return useSyncExternalStore(subscribe, () => current);
}

/** Redeem the ticket of the address, if there is one. */
export async function redeemArrivedTicket(): Promise<void> {
  if (arrivedTicket === undefined) return;
  change({ state: 'redeeming' });
  try {
    const opened = await sendAs<OpenedSession>(undefined, '/api/v1/sessions/redeem', {
      method: 'POST',
      body: JSON.stringify({ ticket: arrivedTicket }),
    });
    if (isExpected(opened)) take(opened);
    else change({ state: 'confirm', opened });
  } catch (error) {
    change({ state: 'failed', problem: Problem.of(error) });
  }
}

/**
 * Whether the ticket is for the person who uses this browser. Only the machine of the gateway makes the operator's; any
 * other comes from the issuer, and whoever has signed in there can send theirs as a link.
 */
function isExpected({ me }: OpenedSession): boolean {
  const started = wasStartedHere();
  const signedIn = session();
  return signedIn ? signedIn.me.user === me.user : started || me.caller.kind === 'operator';
}

/** Continue with the new session, or end it and keep the present one. */
export function confirmTicket(opened: OpenedSession, goOn: boolean): void {
  if (goOn) {
    take(opened);
    return;
  }
  change({ state: 'none' });
  void endSession(opened);
}

/** A failed ticket is forgotten, and the other ways to sign in are shown. */
export function forgetTicket(): void {
  change({ state: 'none' });
}

export async function endSession({ token, me }: Pick<OpenedSession, 'token' | 'me'>): Promise<void> {
  if (!me.session) return;
  await sendAs(token, `/api/v1/sessions/${encodeURIComponent(me.session.id)}`, { method: 'DELETE' }).catch(() => undefined);
}

function take(opened: OpenedSession) {
  const replaced = session();
  keepSession(opened);
  change({ state: 'none' });
  if (replaced && replaced.token !== opened.token) void endSession(replaced);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function change(next: TicketState) {
  current = next;
  for (const listener of listeners) listener();
}
