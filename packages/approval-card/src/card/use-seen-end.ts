import { useEffect, useRef, useState } from 'react';

/** Whether the end of something was on the screen once, or its fold was opened. */
export function useSeenEnd() {
  const mark = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState(false);
  useEffect(() => {
    if (!mark.current) return undefined;
    const observer = new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) setSeen(true);
    });
    observer.observe(mark.current);
    return () => observer.disconnect();
  }, []);
  return { mark, seen, see: () => setSeen(true) };
}
