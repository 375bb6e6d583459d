import { useEffect, useState } from 'react';

import { BASE_URL } from '../../api/address';

/** Whether people can sign in at an issuer: the gateway answers the address of that sign-in with a redirect. */
export function useIssuer(): boolean {
  const [found, setFound] = useState(false);
  useEffect(() => {
    const leaving = new AbortController();
    fetch(`${BASE_URL}/sign-in/start`, { method: 'HEAD', redirect: 'manual', signal: leaving.signal })
      .then((response) => setFound(response.type === 'opaqueredirect' || response.ok))
      .catch(() => undefined);
    return () => leaving.abort();
  }, []);
  return found;
}
