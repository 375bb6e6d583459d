import { useRef, useState } from 'react';

import { words } from '../words';
import { IconButton } from './Button';
import { copyText, selectText } from './copy-text';
import { CopyIcon, DoneIcon } from './icons';
import styles from './Copy.module.css';

const SHOWN_MS = 1500;

/** A button that copies `text`. Where nothing can be copied it selects what `beside` returns. */
export function CopyButton({ text, label, beside }: { text: string; label?: string; beside?: () => Element | null }) {
  const [copied, setCopied] = useState(false);
  async function copy() {
    if (await copyText(text)) {
      setCopied(true);
      setTimeout(() => setCopied(false), SHOWN_MS);
      return;
    }
    const element = beside?.();
    if (element) selectText(element);
  }
  return (
    <IconButton
      icon={copied ? DoneIcon : CopyIcon}
      label={copied ? words.copied : (label ?? words.copy)}
      className={styles.button}
      onClick={() => void copy()}
    />
  );
}

/** An identifier in mono that can be copied. */
export function CopyId({ id }: { id: string }) {
  const text = useRef<HTMLSpanElement>(null);
  return (
    <span className={styles.id}>
      <span ref={text} className="mono faint">
        {id}
      </span>
      <CopyButton text={id} label={words.copyId} beside={() => text.current} />
    </span>
  );
}

/** A block of code or of a command, with a button that copies it. */
export function CopyBlock({ text, label }: { text: string; label?: string }) {
  const block = useRef<HTMLPreElement>(null);
  return (
    <div className={styles.block}>
      <pre ref={block} className="code">
        {text}
      </pre>
      <span className={styles.corner}>
        <CopyButton text={text} label={label} beside={() => block.current} />
      </span>
    </div>
  );
}
