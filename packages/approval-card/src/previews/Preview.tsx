import { lazy, Suspense } from 'react';

import type { PendingAction, PreviewData } from '../types';
import { Foreign } from '../ui/Foreign';
import { usePhone } from '../ui/media';
import { words } from '../words';
import { Folded } from './Folded';
import styles from './previews.module.css';
import { CommandPreview, RequestPreview } from './RequestPreview';
import { TablePreview } from './TablePreview';

const DiffPreview = lazy(() => import('./DiffPreview'));
const SHOWN = { phone: 12, desktop: 40 };

const TITLES: Record<string, string> = {
  http_request: words.cards.wouldSend,
  command: words.cards.wouldRun,
  diff: words.cards.wouldChange,
};

/** The heading of a preview. */
export function previewTitle({ preview }: PendingAction): string {
  return TITLES[preview?.kind ?? ''] ?? words.cards.wouldDo;
}

/** What a call would do, in the form that the gateway gives: a diff, a request, a command, a table or text. */
export function Preview({ action, onOpen }: { action: PendingAction; onOpen?: () => void }) {
  const shown = usePhone() ? SHOWN.phone : SHOWN.desktop;
  const { preview } = action;
  if (!preview) return null;
  return (
    <>
      <Form action={action} preview={preview} shown={shown} onOpen={onOpen} />
      {action.truncated && <p className={styles.note}>{words.cards.truncated}</p>}
    </>
  );
}

interface FormProps {
  action: PendingAction;
  preview: PreviewData;
  shown: number;
  onOpen?: () => void;
}

function Form({ action, preview, shown, onOpen }: FormProps) {
  const { kind, text } = preview;
  if (kind === 'http_request') return <RequestPreview action={action} />;
  if (kind === 'command') return <CommandPreview action={action} />;
  if (kind === 'table') return <TablePreview preview={preview} />;
  if (kind === 'diff') {
    return (
      <Suspense>
        <DiffPreview text={text} shown={shown} onOpen={onOpen} />
      </Suspense>
    );
  }
  return <TextPreview text={text} shown={shown} onOpen={onOpen} />;
}

function TextPreview({ text, shown, onOpen }: { text: string; shown: number; onOpen?: () => void }) {
  const lines = text.split('\n');
  return (
    <Folded
      lines={lines.length}
      shown={shown}
      onOpen={onOpen}
      render={(count) => (
        <div className={styles['text-block']}>
          <Foreign text={lines.slice(0, count).join('\n')} block limit={100_000} />
        </div>
      )}
    />
  );
}
