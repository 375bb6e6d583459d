import { useState, type KeyboardEvent } from 'react';

import type { PendingAction } from '../types';
import { Button } from '../ui/Button';
import { FilterChip } from '../ui/Chip';
import { Field, TextArea } from '../ui/Field';
import { words } from '../words';
import styles from './card.module.css';

interface DenyFormProps {
  action: PendingAction;
  /** Reasons to choose from. */
  reasons?: readonly string[];
  onDeny: (reason: string) => void;
  onClose: () => void;
}

/** How a modifier is written on this machine. */
const modifier = () => (/mac|iphone|ipad/i.test(navigator.userAgent) ? '⌘' : 'Ctrl ');

/** Why not; the caller reads it. It may be left empty. */
export function DenyForm({ action, reasons = [], onDeny, onClose }: DenyFormProps) {
  const [reason, setReason] = useState('');
  const deny = () => onDeny(reason.trim());
  function press(event: KeyboardEvent) {
    const send = event.key === 'Enter' && (event.metaKey || event.ctrlKey);
    if (!send && event.key !== 'Escape') return;
    event.preventDefault();
    event.stopPropagation();
    if (send) deny();
    else onClose();
  }
  return (
    <div className={styles.form} onKeyDown={press}>
      <Field label={words.cards.whyDeny}>
        {(field) => (
          <TextArea {...field} autoFocus rows={2} value={reason} onChange={(event) => setReason(event.target.value)} />
        )}
      </Field>
      {reasons.length > 0 && (
        <div className={styles.chips}>
          {reasons.map((one) => (
            <FilterChip key={one} onClick={() => setReason(one)}>
              {one.length > 60 ? `${one.slice(0, 58)}…` : one}
            </FilterChip>
          ))}
        </div>
      )}
      <div className="row">
        <Button look="danger" size="l" hint={`${modifier()}⏎`} onClick={deny}>
          {action.kind === 'consent' ? words.cards.refuse : words.cards.deny}
        </Button>
        <Button look="ghost" size="l" onClick={onClose}>
          {words.cancel}
        </Button>
      </div>
    </div>
  );
}
