import { useEffect, useState } from 'react';

import { BASE_PATH, BASE_URL } from '../../api/address';

/** Whether people can sign in at an issuer: the gateway has content at the address of that sign-in. */
export function useIssuer(): boolean {
  const [found, setFound] = useState(false);
  useEffect(() => {
    const leaving = new AbortController();
    fetch(`${BASE_URL}/sign-in/start`, { method: 'HEAD', redirect: 'manual', signal: leaving.signal })
      .then((response) => setFound(response.type === 'opaqueredirect' || response.status === 200))
      .catch(() => undefined);
    return () => leaving.abort();
  }, []);
  return found;
}

const STARTED = `toolpost.issuer${BASE_PATH}`;
/** A sign-in at the issuer takes ten minutes at most. */
const LONGEST_MS = 600_000;

/** Remember that this tab goes to the issuer, so that the ticket with which it comes back is its own. */
export function noteStart(): void {
  sessionStorage.setItem(STARTED, String(Date.now()));
}

/** Whether this tab went to the issuer and has not come back since. */
export function wasStartedHere(): boolean {
  const at = Number(sessionStorage.getItem(STARTED) ?? Number.NaN);
  sessionStorage.removeItem(STARTED);
  return Math.abs(Date.now() - at) < LONGEST_MS;
}
