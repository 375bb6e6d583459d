/** Requests to the gateway: with the session's bearer, refused as a `Problem`, and sent again after a new sign-in. */

import createClient from 'openapi-fetch';

import { measureClock } from '../format/clock';
import { words } from '../words';
import { BASE_URL } from './address';
import { Problem } from './problem';
import type { paths } from './schema';
import { dropSession, nextSession, session, type Session } from './session';

/** The API with its types. A refused request rejects with a `Problem`, so `data` is there. */
export const api = createClient<paths>({ baseUrl: BASE_URL, fetch: send });

/** The body of an answer. */
export async function body<Data>(answer: Promise<{ data?: Data }>): Promise<NonNullable<Data>> {
  const { data } = await answer;
  if (data == null) throw new Problem({ status: 0, code: 'no_body', detail: words.noBody });
  return data;
}

/** Send a request with the session's bearer. After a 401 and a new sign-in of the same user, send it again. */
export async function send(request: Request): Promise<Response> {
  const signedIn = session() ?? (await nextSession());
  const response = await sendOnce(request.clone(), signedIn);
  if (response.status === 401) {
    dropSession(signedIn.token);
    const next = await nextSession();
    if (next.me.user !== signedIn.me.user) {
      throw new Problem({ status: 401, code: 'other_person', detail: words.otherPerson });
    }
    return send(request);
  }
  if (!response.ok) throw await Problem.from(response);
  return response;
}

/** A request outside the typed client: a stream, a file, or one without a session. */
export function requestTo(path: string, init?: RequestInit): Request {
  return new Request(`${BASE_URL}${path}`, init);
}

/** A request with a bearer of its own, or none; used to sign in. */
export async function sendAs<Data>(bearer: string | undefined, path: string, init: RequestInit): Promise<Data> {
  const request = requestTo(path, init);
  if (bearer !== undefined) request.headers.set('Authorization', `Bearer ${bearer}`);
  if (init.body != null) request.headers.set('Content-Type', 'application/json');
  const response = await fetch(request);
  if (!response.ok) throw await Problem.from(response);
  return (response.status === 204 ? undefined : await response.json()) as Data;
}

async function sendOnce(request: Request, { token }: Session): Promise<Response> {
  request.headers.set('Authorization', `Bearer ${token}`);
  const begin = performance.now();
  const response = await fetch(request);
  measureClock(response.headers.get('date'), performance.now() - begin);
  return response;
}
