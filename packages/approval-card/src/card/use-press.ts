import { useEffect, useRef } from 'react';

const GUARD_MS = 400;

/** Wraps presses so that none counts in the first 400 ms after the card appeared under the pointer. */
export function usePressGuard(id: string): (action: () => void) => () => void {
  const shownAt = useRef(0);
  useEffect(() => {
    shownAt.current = performance.now();
  }, [id]);
  return (action) => () => {
    if (performance.now() - shownAt.current >= GUARD_MS) action();
  };
}
