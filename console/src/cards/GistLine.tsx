import { gistOf } from '@toolpost/approval-card/card/gist';

import type { Card } from '../api/types';
import { Foreign } from '../ui/Foreign';
import { words } from '../words';
import { serviceOf, shortUser } from './kinds';

/** What a card is about, in one line. `strong` makes the values bold, below a sentence that has the kind. */
export function GistLine({ card, strong }: { card: Card; strong?: boolean }) {
  if (card.kind === 'consent') return <Foreign text={words.cards.needsAccount(serviceOf(card))} cutOnly />;
  if (card.kind === 'input') return <Foreign text={card.prompt} cutOnly />;
  if (card.kind === 'unknown' && !strong) return <>{words.cards.outcomeUnknown}</>;
  const gist = gistOf(card);
  if (gist.path !== undefined) {
    return (
      <>
        <span className="mono">
          <Foreign text={gist.path} cutOnly />
        </span>{' '}
        <span className={strong ? 'ok-ink medium' : ''}>+{gist.added}</span>{' '}
        <span className={strong ? 'fail-ink medium' : ''}>−{gist.removed}</span>
      </>
    );
  }
  if (gist.arguments.length === 0) return <>{words.cards.noArguments}</>;
  return gist.arguments.map(({ name, value }, index) => (
    <span key={name}>
      {index > 0 && ' · '}
      <Foreign text={name} cutOnly /> {strong ? <b>{<Foreign text={value} cutOnly />}</b> : <Foreign text={value} cutOnly />}
    </span>
  ));
}

/** Who asked, without the tenant. */
export function Asker({ card }: { card: Card }) {
  return <Foreign text={card.caller?.name ?? shortUser(card.asked_by)} cutOnly />;
}
