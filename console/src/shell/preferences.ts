/** What a person prefers in this browser. */

import { useSyncExternalStore } from 'react';

import { setHours, type Hours } from '../format/time';

export interface Preferences {
  theme: 'system' | 'light' | 'dark';
  density: 'compact' | 'comfortable';
  /** 24 hours, or 12 with AM and PM. */
  hours: Hours;
  /** Single letters as shortcuts (WCAG 2.1.4 wants that they can be turned off). */
  letterKeys: boolean;
  /** Tell about new questions by the system, while a tab is open. */
  notifications: boolean;
}

const KEY = 'toolpost.preferences';
const DEFAULTS: Preferences = { theme: 'system', density: 'compact', hours: 'h23', letterKeys: true, notifications: false };

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

/** Set theme and density on the document, by which styles select, and how times are shown. */
export function applyPreferences(): void {
  const { dataset } = document.documentElement;
  setHours(current.hours === 'h12' ? 'h12' : 'h23');
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
