/** The title and the icon of the tab: `(5) Approvals · Toolpost`, with a dot while something waits for this person. */

import { useEffect } from 'react';

import { words } from '../words';
import iconUrl from './icon.svg';
import waitingIconUrl from './icon-waiting.svg';

let page = '';
let waiting = 0;

export function useTitle(title: string): void {
  useEffect(() => {
    page = title;
    show();
  }, [title]);
}

/** How many questions wait for this person. */
export function showWaiting(count: number): void {
  waiting = count;
  show();
}

function show(): void {
  const name = page === '' ? words.product : `${page} · ${words.product}`;
  document.title = waiting > 0 ? `(${waiting}) ${name}` : name;
  const link = document.querySelector<HTMLLinkElement>('link[rel="icon"]');
  const url = waiting > 0 ? waitingIconUrl : iconUrl;
  if (link && link.getAttribute('href') !== url) link.href = url;
}
