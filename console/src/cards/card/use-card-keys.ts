import { armApproval } from '@toolpost/approval-card/card/ApprovalButtons';
import { useNavigate } from '@tanstack/react-router';
import type { RefObject } from 'react';

import { useKeys } from '../../shell/keys';
import type { Card } from '../../api/types';
import type { DetailTab } from './Details';
import { copyText } from '../../ui/copy-text';
import { toast } from '../../ui/Toast';
import { words } from '../../words';
import { linkTo } from './link';

interface CardKeys {
  card: Card;
  bar: RefObject<HTMLElement | null>;
  setTab: (tab: DetailTab) => void;
  onBack: () => void;
  onNext: () => void;
  onPrevious: () => void;
}

/** The keys of a card. `A` only moves the focus to Approve. */
export function useCardKeys({ card, bar, setTab, onBack, onNext, onPrevious }: CardKeys): void {
  const navigate = useNavigate();
  const answer = (name: string) => bar.current?.querySelector<HTMLButtonElement>(`[data-answer="${name}"]`);
  useKeys({
    j: onNext,
    k: onPrevious,
    u: onBack,
    a: () => armApproval(bar.current),
    e: () => answer('modify')?.click(),
    d: () => answer('deny')?.click(),
    p: () => answer('pass-on')?.click(),
    l: () => answer('later')?.click(),
    '1': () => setTab('preview'),
    '2': () => setTab('arguments'),
    '3': () => setTab('json'),
    o: () => void navigate({ to: '/runs/$id', params: { id: card.run_id } }),
    c: () => void copyLink(card.id),
  });
}

export async function copyLink(id: string): Promise<void> {
  if (await copyText(linkTo(id))) toast(words.cards.linkCopied);
}
