import { useNavigate, useSearch } from '@tanstack/react-router';
import { Suspense, useState } from 'react';

import type { Card } from '../../api/types';
import { PageTitle } from '../../shell/Page';
import { Button } from '../../ui/Button';
import { Kbd } from '../../ui/Kbd';
import { lazyPart } from '../../ui/lazy-part';
import { List } from '../../ui/List';
import { Empty, Failure, Skeleton } from '../../ui/States';
import { Segmented } from '../../ui/Tabs';
import { words } from '../../words';
import styles from './approvals.module.css';
import { CardRow } from './CardRow';
import type { CardLists } from './use-card-lists';
import { useShownCards } from './use-shown-cards';

const Filters = lazyPart(() => import('./Filters'));

type Tab = 'open' | 'answered' | 'expired';

interface CardListProps {
  lists: CardLists;
  selected: string | undefined;
}

/** The list of pending actions with its tabs and filters. */
export function CardList({ lists, selected }: CardListProps) {
  const search = useSearch({ strict: false });
  const navigate = useNavigate();
  const [inside, setInside] = useState(false);
  const tab: Tab = (search.status as Tab | undefined) ?? 'open';
  const { shown, newer, showAll } = useShownCards(lists.shown, tab === 'open' && inside);
  const tabs = [
    { value: 'open' as const, label: words.approvals.tabs.open, count: lists.open },
    { value: 'answered' as const, label: words.approvals.tabs.answered },
    { value: 'expired' as const, label: words.approvals.tabs.expired },
  ];
  return (
    <section
      className={styles.list}
      aria-label={words.approvals.label}
      onPointerEnter={() => setInside(true)}
      onPointerLeave={() => setInside(false)}
    >
      <header className={styles.top}>
        <PageTitle title={words.shell.pages.approvals} />
        <span className="end">
          <Segmented
            label={words.approvals.label}
            items={tabs}
            value={tab}
            onChange={(status) =>
              void navigate({
                to: '/approvals',
                search: (now) => ({ ...now, status: status === 'open' ? undefined : status }),
              })
            }
          />
        </span>
      </header>
      <Suspense fallback={<div className={styles.filters} />}>
        <Filters cards={lists.all} />
      </Suspense>
      {newer > 0 && (
        <button type="button" className={styles.newer} onClick={showAll}>
          {words.approvals.newer(newer)}
        </button>
      )}
      {shown.length > 0 ? (
        <List
          items={shown}
          label={words.approvals.label}
          keyOf={(card) => card.id}
          rowHeight={77}
          activeIndex={shown.findIndex((card) => card.id === selected)}
          render={(card) => <CardRow card={card} selected={card.id === selected} />}
        />
      ) : (
        <Nothing lists={lists} tab={tab} />
      )}
      <div className={styles.hint}>
        <span>
          <Kbd>J</Kbd> <Kbd>K</Kbd> {words.approvals.keysNext}
        </span>
        <span>
          <Kbd>A</Kbd> {words.approvals.keysApprove}
        </span>
        <span>
          <Kbd>?</Kbd> {words.approvals.keysAll}
        </span>
      </div>
    </section>
  );
}

function Nothing({ lists, tab }: { lists: CardLists; tab: Tab }) {
  const navigate = useNavigate();
  if (lists.loading) return <Skeleton rows={5} height={77} />;
  if (lists.error) return <Failure error={lists.error} onRetry={lists.retry} />;
  if (tab === 'answered') return <Empty title={words.approvals.emptyAnswered} />;
  if (tab === 'expired') return <Empty title={words.approvals.emptyExpired} />;
  if (lists.all.length === 0) return <Empty title={words.approvals.emptyOpen}>{words.approvals.emptyOpenMore}</Empty>;
  const all = (card?: Card) => void navigate({ to: '/approvals', search: card ? {} : { mine: 'no' } });
  return (
    <Empty
      title={words.approvals.emptyMine(lists.all.length)}
      actions={<Button onClick={() => all()}>{words.approvals.showAll}</Button>}
    />
  );
}
