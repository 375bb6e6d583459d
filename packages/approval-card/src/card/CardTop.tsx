import { ClockIcon } from '../icons';
import type { PendingAction } from '../types';
import { Chip } from '../ui/Chip';
import { Countdown } from '../ui/Countdown';
import { Glyph } from '../ui/Glyph';
import { words } from '../words';
import { lookOf } from './kinds';

/** The kind of a pending action. */
export function KindChip({ action }: { action: PendingAction }) {
  const { icon, tone, label } = lookOf(action);
  return (
    <Chip tone={tone} icon={icon}>
      {label}
    </Chip>
  );
}

/** When an open action expires, and what that means; nothing for one that needs no answer. */
export function Expiry({ action, short }: { action: PendingAction; short?: boolean }) {
  if (action.status !== 'open' || action.kind === 'restart') return null;
  return (
    <>
      <Glyph icon={ClockIcon} size={14} />
      <span>
        {words.cards.expiresBefore} <Countdown at={action.expires_at} />
        {!short && words.cards.expiresAfter}
      </span>
    </>
  );
}
