import { useEffect, useState } from 'react';

import { Input } from './Field';
import styles from './TextFilter.module.css';

const REST_MS = 300;

/** A filter that is typed; it changes after a moment of rest. */
export function TextFilter({ label, value, onChange }: { label: string; value: string; onChange: (value: string) => void }) {
  const [text, setText] = useState(value);
  const [shown, setShown] = useState(value);
  if (shown !== value) {
    setShown(value);
    if (value !== text.trim()) setText(value);
  }
  useEffect(() => {
    if (text.trim() === value) return undefined;
    const timer = setTimeout(() => onChange(text.trim()), REST_MS);
    return () => clearTimeout(timer);
  }, [text, value, onChange]);
  return <Input className={styles.text} aria-label={label} placeholder={label} value={text} onChange={(event) => setText(event.target.value)} />;
}
