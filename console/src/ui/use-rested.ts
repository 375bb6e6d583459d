import { useEffect, useState } from 'react';

const REST_MS = 400;

/** A text that is typed, as it was when it last rested for a moment. */
export function useRested(text: string): string {
  const [rested, setRested] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setRested(text), REST_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return rested;
}
