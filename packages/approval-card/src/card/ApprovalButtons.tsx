import type { ReactNode } from 'react';

import { CloseIcon, DoneIcon, WritesIcon } from '../icons';
import type { PendingAction } from '../types';
import { Button } from '../ui/Button';
import { usePhone } from '../ui/media';
import { words } from '../words';
import styles from './card.module.css';
import { isDefinitionChange } from './kinds';
import { usePressGuard } from './use-press';

interface ApprovalButtonsProps {
  action: PendingAction;
  /** Whether a decision is offered to this person. */
  can: (decision: string) => boolean;
  /** The end of the preview was not on the screen yet. */
  quiet?: boolean;
  onApprove: () => void;
  /** Opens a form for changed arguments; without it, changes are not offered. */
  onEdit?: () => void;
  onDeny: () => void;
  /** At the end of the row; not on a phone. */
  more?: ReactNode;
}

/** Approve, approve with changes, deny. Presses do not count at first, so that a card that appears is not approved by mistake. */
export function ApprovalButtons({ action, can, quiet, onApprove, onEdit, onDeny, more }: ApprovalButtonsProps) {
  const phone = usePhone();
  const guarded = usePressGuard(action.id);
  const size = phone ? 'xl' : 'l';
  const approve = can('approve') && (
    <Button
      look="primary"
      size={size}
      icon={DoneIcon}
      hint="A"
      data-answer="approve"
      disabled={quiet}
      onClick={guarded(onApprove)}
    >
      {isDefinitionChange(action) ? words.cards.acceptAndRun : words.cards.approve}
    </Button>
  );
  const deny = can('deny') && (
    <Button look="danger" size={size} icon={CloseIcon} hint="D" data-answer="deny" onClick={guarded(onDeny)}>
      {words.cards.deny}
    </Button>
  );
  const edit = onEdit && can('modify') && (
    <Button
      look={phone ? 'ghost' : 'plain'}
      size="l"
      icon={phone ? undefined : WritesIcon}
      hint="E"
      data-answer="modify"
      className={styles.wide}
      onClick={guarded(onEdit)}
    >
      {words.cards.approveChanges}
    </Button>
  );
  if (phone) {
    return (
      <>
        <p className={styles.note}>{quiet ? words.cards.seeAll : words.cards.bindingShort}</p>
        <div className={styles.two}>
          {deny}
          {approve}
        </div>
        {edit}
      </>
    );
  }
  return (
    <>
      {approve}
      {edit}
      {deny}
      {more && <span className="end row">{more}</span>}
    </>
  );
}

/**
 * Move the focus to Approve in a card, where `Enter` presses it, so that a stray letter approves nothing; called again,
 * take the focus away.
 */
export function armApproval(card: Element | null): void {
  const button = card?.querySelector<HTMLButtonElement>('[data-answer="approve"]');
  if (document.activeElement === button) button?.blur();
  else button?.focus();
}
