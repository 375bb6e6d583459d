/** Whether the gateway serves a newer console than the one on the screen. */

import { api, body } from './client';
import { session, updateMe } from './session';
import type { Me } from './types';

/** The build that the gateway named when this page had just been loaded from it. */
let own: string | null | undefined;

/** Ask who is signed in and what the gateway serves; whenever the stream of events opens. */
export async function refreshMe(): Promise<void> {
  const token = session()?.token;
  if (token === undefined) return;
  try {
    const me = await body(api.GET('/api/v1/me'));
    if (own === undefined) own = me.server.build;
    updateMe(token, me);
  } catch {
    // The stream says what is wrong with the connection, and the next one asks again.
  }
}

export function isNewer(me: Me): boolean {
  return own !== undefined && me.server.build !== own;
}
