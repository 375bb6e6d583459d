import type { Card } from '../../api/types';
import { IconButton } from '../../ui/Button';
import { Chip } from '../../ui/Chip';
import { CopyId } from '../../ui/Copy';
import { Countdown } from '../../ui/Countdown';
import { Glyph } from '../../ui/Glyph';
import { BackIcon, ClockIcon } from '../../ui/icons';
import { usePhone } from '../../ui/media';
import { words } from '../../words';
import { lookOf } from '../kinds';
import styles from './card.module.css';

interface CardTopProps {
  card: Card;
  position?: { at: number; of: number };
  onBack: () => void;
}

/** The line above a card: its kind and id, when it expires, and its place in the list. */
export function CardTop({ card, position, onBack }: CardTopProps) {
  const phone = usePhone();
  const { icon, tone, label } = lookOf(card);
  return (
    <header className={styles.top}>
      <span className={styles.back}>
        <IconButton icon={BackIcon} label={words.back} onClick={onBack} />
      </span>
      <span className={styles.id}>
        <Chip tone={tone} icon={icon}>
          {label}
        </Chip>
        {!phone && <CopyId id={card.id} />}
      </span>
      <span className="end row soft t12">
        {card.status === 'open' && card.kind !== 'restart' && <Expiry at={card.expires_at} short={phone} />}
        {position && !phone && <Chip tone="line">{words.cards.position(position.at, position.of)}</Chip>}
      </span>
    </header>
  );
}

function Expiry({ at, short }: { at: number; short: boolean }) {
  return (
    <>
      <Glyph icon={ClockIcon} size={14} />
      <span>
        {words.cards.expiresBefore} <Countdown at={at} />
        {!short && words.cards.expiresAfter}
      </span>
    </>
  );
}
