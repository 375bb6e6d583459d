import pieces from '@toolpost/approval-card/card/card.module.css';
import { Preview } from '@toolpost/approval-card/previews/Preview';
import { keepPreviousData, useQuery } from '@tanstack/react-query';

import { changedPreviewQuery } from '../../api/previews';
import type { Card } from '../../api/types';
import { Foreign } from '../../ui/Foreign';
import { useRested } from '../../ui/use-rested';
import { words } from '../../words';

/** What the call would do with the changes; asked for once they rest. */
export function ChangedPreview({ card, changes }: { card: Card; changes: readonly unknown[] }) {
  const rested = useRested(JSON.stringify(changes));
  const query = useQuery({ ...changedPreviewQuery(card.id, rested), placeholderData: keepPreviousData });
  if (query.error) {
    return (
      <p className={pieces.problem} role="status">
        <Foreign text={query.error.message} block />
      </p>
    );
  }
  if (!query.data?.preview) return null;
  const changed = { ...card, arguments: query.data.arguments, masked: query.data.masked, preview: query.data.preview };
  return (
    <section aria-label={words.cards.withChanges}>
      <div className={pieces.head}>
        <h3>{words.cards.withChanges}</h3>
      </div>
      <Preview action={changed} />
    </section>
  );
}
