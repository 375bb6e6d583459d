/** Signing in at a service: this tab waits while another shows the service; a phone has one tab for both. */

import { useState } from 'react';

import { api, body } from '../api/client';
import { Problem } from '../api/problem';
import { keys } from '../api/queries';
import { queryClient } from '../api/query-client';

const RETURN_KEY = 'toolpost.return';

export type ConnectState = 'idle' | 'starting' | 'elsewhere' | 'connected';

/** Start a sign-in at a service; `to` is the page to come back to. */
export function useConnect(service: string, to: string) {
  const [state, setState] = useState<ConnectState>('idle');
  const [problem, setProblem] = useState<Problem>();

  async function connect() {
    setState('starting');
    setProblem(undefined);
    // Opened by the press itself, because browsers block windows that open later.
    const tab = usesOneTab() ? null : window.open('about:blank', '_blank');
    try {
      const started = await body(
        api.POST('/api/v1/accounts/{service}/sign-in', { params: { path: { service } }, body: {} }),
      );
      if (started.url === null) {
        tab?.close();
        setState('connected');
        void queryClient.invalidateQueries({ queryKey: keys.accounts });
      } else goTo(started.url, tab);
    } catch (error) {
      tab?.close();
      setProblem(Problem.of(error));
      setState('idle');
    }
  }

  function goTo(url: string, tab: Window | null) {
    if (!isWebUrl(url)) throw new Problem({ status: 0, code: 'invalid_url', detail: url });
    if (!tab) {
      sessionStorage.setItem(RETURN_KEY, to);
      location.assign(url);
      return;
    }
    tab.opener = null;
    tab.location.href = url;
    setState('elsewhere');
  }

  return { connect, state, problem };
}

/** Where a sign-in began in this tab, once. */
export function takeReturn(): string | undefined {
  const to = sessionStorage.getItem(RETURN_KEY) ?? undefined;
  sessionStorage.removeItem(RETURN_KEY);
  return to;
}

export function isWebUrl(url: string): boolean {
  return /^https?:\/\//i.test(url);
}

function usesOneTab(): boolean {
  return window.matchMedia('(hover: none) and (pointer: coarse)').matches;
}
