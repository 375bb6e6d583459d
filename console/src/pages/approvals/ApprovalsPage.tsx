import { useQuery } from '@tanstack/react-query';
import { useNavigate, useParams, useSearch } from '@tanstack/react-router';
import { useState } from 'react';

import { cardQuery } from '../../api/queries';
import { Card } from '../../cards/card/Card';
import { useTitle } from '../../shell/title';
import { useKeys } from '../../shell/keys';
import { classes } from '../../ui/classes';
import { useDesktop } from '../../ui/media';
import { Empty, Failure, Skeleton } from '../../ui/States';
import { words } from '../../words';
import styles from './approvals.module.css';
import { CardList } from './CardList';
import { useCardLists } from './use-card-lists';

/** Pending actions: the list at the left, one card at the right; on a narrow screen one of the two. */
export default function ApprovalsPage() {
  const { id } = useParams({ strict: false });
  const desktop = useDesktop();
  const navigate = useNavigate();
  const lists = useCardLists();
  const first = useFirst(lists.shown[0]?.id);
  const shown = id ?? (desktop ? first : undefined);
  const at = lists.shown.findIndex((card) => card.id === shown);

  function open(next: string | undefined) {
    if (next !== undefined) void navigate({ to: '/approvals/$id', params: { id: next }, search: true });
    else void navigate({ to: '/approvals', search: true });
  }
  const back = () => open(undefined);
  const next = () => open(lists.shown[at + 1]?.id ?? lists.shown.find((card) => card.id !== shown)?.id);
  const previous = () => open(lists.shown[at - 1]?.id ?? shown);
  useKeys(shown === undefined ? { j: () => open(lists.shown[0]?.id) } : {});
  useTitle(words.shell.pages.approvals);

  return (
    <div className={classes(styles.split, !desktop && styles.alone)}>
      {desktop || id === undefined ? (
        <CardList lists={lists} selected={shown} />
      ) : (
        <h1 className="visually-hidden">{words.shell.pages.approvals}</h1>
      )}
      {shown !== undefined ? (
        <ShownCard
          key={shown}
          id={shown}
          position={at < 0 ? undefined : { at: at + 1, of: lists.shown.length }}
          onBack={back}
          onNext={next}
          onPrevious={previous}
        />
      ) : (
        desktop && !lists.loading && <Empty title={lists.shown.length > 0 ? words.approvals.select : ''} />
      )}
    </div>
  );
}

/** The first card of the list when there was one: it stays when it is answered, so that its result can be read. */
function useFirst(first: string | undefined): string | undefined {
  const search = JSON.stringify(useSearch({ strict: false }));
  const [kept, setKept] = useState({ search, first });
  if (kept.search !== search || kept.first === undefined) {
    if (kept.search !== search || first !== undefined) setKept({ search, first });
    return first;
  }
  return kept.first;
}

interface ShownCardProps {
  id: string;
  position?: { at: number; of: number };
  onBack: () => void;
  onNext: () => void;
  onPrevious: () => void;
}

function ShownCard({ id, ...rest }: ShownCardProps) {
  const card = useQuery(cardQuery(id));
  if (card.isPending) return <Skeleton rows={7} height={64} />;
  if (card.error) return <Failure error={card.error} what={words.cards.gone(id)} onRetry={() => void card.refetch()} />;
  return <Card card={card.data} {...rest} />;
}
