/** What a person prefers in this browser. */

import { useSyncExternalStore } from 'react';

export interface Preferences {
  theme: 'system' | 'light' | 'dark';
  density: 'compact' | 'comfortable';
  /** Single letters as shortcuts (WCAG 2.1.4 wants that they can be turned off). */
  letterKeys: boolean;
  /** Tell about new questions by the system, while a tab is open. */
  notifications: boolean;
}

const KEY = 'toolpost.preferences';
const DEFAULTS: Preferences = { theme: 'system', density: 'compact', letterKeys: true, notifications: false };

const listeners = new Set<() => void>();
let current = read();

export function preferences(): Preferences {
  return current;
}

export function usePreferences(): Preferences {
  return useSyncExternalStore(subscribe, preferences);
}

export function setPreferences(change: Partial<Preferences>): void {
  current = { ...current, ...change };
  localStorage.setItem(KEY, JSON.stringify(current));
  applyPreferences();
  for (const listener of listeners) listener();
}

/** Set theme and density on the document; styles select by them. */
export function applyPreferences(): void {
  const { dataset } = document.documentElement;
  dataset.density = current.density;
  if (current.theme === 'system') delete dataset.theme;
  else dataset.theme = current.theme;
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function read(): Preferences {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(KEY) ?? '{}');
    return { ...DEFAULTS, ...(stored as Partial<Preferences>) };
  } catch {
    return DEFAULTS;
  }
}
