import { Expiry, KindChip } from '@toolpost/approval-card/card/CardTop';

import type { ReactNode } from 'react';

import type { Card } from '../../api/types';
import { IconButton } from '../../ui/Button';
import { Chip } from '../../ui/Chip';
import { CopyId } from '../../ui/Copy';
import { BackIcon } from '../../ui/icons';
import { usePhone } from '../../ui/media';
import { words } from '../../words';
import styles from './card.module.css';

interface CardTopProps {
  card: Card;
  position?: { at: number; of: number };
  /** On a phone. */
  menu?: ReactNode;
  onBack: () => void;
}

/** The line above a card: its kind and id, when it expires, and its place in the list. */
export function CardTop({ card, position, menu, onBack }: CardTopProps) {
  const phone = usePhone();
  return (
    <header className={styles.top}>
      <span className={styles.back}>
        <IconButton icon={BackIcon} label={words.back} onClick={onBack} />
      </span>
      <span className={styles.id}>
        <KindChip action={card} />
        {!phone && <CopyId id={card.id} />}
      </span>
      <span className="end row soft t12">
        <Expiry action={card} short={phone} />
        {position && !phone && <Chip tone="line">{words.cards.position(position.at, position.of)}</Chip>}
        {menu}
      </span>
    </header>
  );
}
