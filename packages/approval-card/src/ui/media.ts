import { useSyncExternalStore } from 'react';

/** Whether a media query holds now, and again whenever that changes. */
export function useMedia(query: string): boolean {
  return useSyncExternalStore(
    (changed) => {
      const list = window.matchMedia(query);
      list.addEventListener('change', changed);
      return () => list.removeEventListener('change', changed);
    },
    () => window.matchMedia(query).matches,
    () => false,
  );
}

export const usePhone = () => useMedia('(max-width: 639px)');

/** Room for a list and its detail side by side. */
export const useDesktop = () => useMedia('(min-width: 1024px)');

/** Room for two columns of code in a detail. */
export const useWide = () => useMedia('(min-width: 1200px)');
