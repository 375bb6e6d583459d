import { lazy, Suspense } from 'react';

import type { Card } from '../../api/types';
import { Foreign } from '../../ui/Foreign';
import { Skeleton } from '../../ui/States';
import { usePhone } from '../../ui/media';
import { words } from '../../words';
import { Folded } from './Folded';
import styles from './previews.module.css';
import { CommandPreview, RequestPreview } from './RequestPreview';
import { TablePreview } from './TablePreview';

const DiffPreview = lazy(() => import('./DiffPreview'));
const SHOWN = { phone: 12, desktop: 40 };

/** What a call would do, in the form that the gateway gives: a diff, a request, a command, a table or text. */
export function Preview({ card, onOpen }: { card: Card; onOpen?: () => void }) {
  const shown = usePhone() ? SHOWN.phone : SHOWN.desktop;
  const { preview } = card;
  if (!preview) return null;
  return (
    <>
      <Form card={card} kind={preview.kind} text={preview.text} shown={shown} onOpen={onOpen} />
      {card.truncated && <p className={styles.note}>{words.cards.truncated}</p>}
    </>
  );
}

interface FormProps {
  card: Card;
  kind: string;
  text: string;
  shown: number;
  onOpen?: () => void;
}

function Form({ card, kind, text, shown, onOpen }: FormProps) {
  if (kind === 'http_request') return <RequestPreview card={card} />;
  if (kind === 'command') return <CommandPreview card={card} />;
  if (kind === 'table') return <TablePreview preview={card.preview} />;
  if (kind === 'diff') {
    return (
      <Suspense fallback={<Skeleton rows={4} height={24} />}>
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
