import { useState } from 'react';

import type { Answer, Card } from '../../api/types';
import { useKeys } from '../../shell/keys';
import { Button } from '../../ui/Button';
import { FilterChip } from '../../ui/Chip';
import { Field, TextArea } from '../../ui/Field';
import { MODIFIER } from '../../shell/keys';
import { words } from '../../words';
import { lastReasons, rememberReason } from '../reasons';
import styles from './card.module.css';

interface DenyFormProps {
  card: Card;
  onAnswer: (answer: Answer) => void;
  onClose: () => void;
}

/** Why not; the caller reads it. It may be left empty. */
export function DenyForm({ card, onAnswer, onClose }: DenyFormProps) {
  const [reason, setReason] = useState('');
  function deny() {
    const given = reason.trim();
    rememberReason(given);
    onAnswer({ decision: 'deny', ...(given !== '' && { reason: given }) });
  }
  useKeys({ 'mod+Enter': deny, Escape: onClose });
  return (
    <div className={styles.form}>
      <Field label={words.cards.whyDeny}>
        {(field) => (
          <TextArea {...field} autoFocus rows={2} value={reason} onChange={(event) => setReason(event.target.value)} />
        )}
      </Field>
      <div className={styles.chips}>
        {lastReasons().map((one) => (
          <FilterChip key={one} onClick={() => setReason(one)}>
            {one.length > 60 ? `${one.slice(0, 58)}…` : one}
          </FilterChip>
        ))}
      </div>
      <div className="row">
        <Button look="danger" size="l" hint={`${MODIFIER}⏎`} onClick={deny}>
          {card.kind === 'consent' ? words.cards.refuse : words.cards.sendDenial}
        </Button>
        <Button look="ghost" size="l" onClick={onClose}>
          {words.cancel}
        </Button>
      </div>
    </div>
  );
}
