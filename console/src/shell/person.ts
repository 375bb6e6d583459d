import { useSyncExternalStore } from 'react';

import { lastSession, onSession } from '../api/session';

/** The user whose pages are shown: the one signed in, or the one whose session has ended. */
export function useShownPerson(): string | undefined {
  return useSyncExternalStore(onSession, () => lastSession()?.me.user);
}
