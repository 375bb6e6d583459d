/** The session of this browser: a bearer in localStorage, shared by all tabs. */

import { useSyncExternalStore } from 'react';

import { BASE_PATH } from './address';
import type { Me, OpenedSession } from './types';

export interface Session {
  token: string;
  me: Me;
}

const KEY = `toolpost.session${BASE_PATH}`;

const listeners = new Set<() => void>();
let current = read();

window.addEventListener('storage', (event) => {
  if (event.key === KEY || event.key === null) set(read());
});

export function session(): Session | undefined {
  return current;
}

export function useSession(): Session | undefined {
  return useSyncExternalStore(onSession, session);
}

/** The user who is signed in. Only pages read it, and pages are shown only after a sign-in. */
export function useMe(): Me {
  const signedIn = useSession();
  const last = lastSession();
  const shown = signedIn ?? last;
  if (!shown) throw new Error('no session');
  return shown.me;
}

export function keepSession({ token, me }: Pick<OpenedSession, 'token' | 'me'>): void {
  const kept: Session = { token, me };
  localStorage.setItem(KEY, JSON.stringify(kept));
  set(kept);
}

/** Forget a session that ended; one that has replaced it stays. */
export function dropSession(token: string): void {
  if (current?.token !== token) return;
  localStorage.removeItem(KEY);
  set(undefined);
}

/** Take what the gateway says now about who is signed in. */
export function updateMe(token: string, me: Me): void {
  if (current?.token === token) keepSession({ token, me });
}

/** The next session after the present one has ended. */
export async function nextSession(): Promise<Session> {
  if (current) return current;
  return new Promise((resolve) => {
    const stop = onSession(() => {
      if (!current) return;
      stop();
      resolve(current);
    });
  });
}

export function onSession(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** The user of the page on the screen after the session has ended. */
let last: Session | undefined = current;
export function lastSession(): Session | undefined {
  return last;
}

function set(next: Session | undefined): void {
  if (next?.token === current?.token && JSON.stringify(next) === JSON.stringify(current)) return;
  current = next;
  last = next ?? last;
  for (const listener of listeners) listener();
}

function read(): Session | undefined {
  try {
    const stored = JSON.parse(localStorage.getItem(KEY) ?? 'null') as Partial<Session> | null;
    return stored?.token && stored.me ? { token: stored.token, me: stored.me } : undefined;
  } catch {
    return undefined;
  }
}
