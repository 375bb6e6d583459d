import { useSyncExternalStore } from 'react';

import { lastSession, onSession } from '../api/session';

/** Whose pages are shown: who is signed in, or who was until the session ended. */
export function useShownPerson(): string | undefined {
  return useSyncExternalStore(onSession, () => lastSession()?.me.user);
}
