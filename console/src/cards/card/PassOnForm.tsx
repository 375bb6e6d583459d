import pieces from '@toolpost/approval-card/card/card.module.css';
import { useMutation } from '@tanstack/react-query';
import { useState, type SubmitEvent } from 'react';

import { api, body } from '../../api/client';
import { Problem } from '../../api/problem';
import { keys } from '../../api/queries';
import { queryClient } from '../../api/query-client';
import type { Card } from '../../api/types';
import { useKeys } from '../../shell/keys';
import { Button } from '../../ui/Button';
import { Field, Input } from '../../ui/Field';
import { Foreign } from '../../ui/Foreign';
import { toast } from '../../ui/Toast';
import { words } from '../../words';

/** Ask another person to answer. Who may answer does not change. */
export function PassOnForm({ card, onClose }: { card: Card; onClose: () => void }) {
  const [to, setTo] = useState('');
  const [note, setNote] = useState('');
  const passOn = useMutation({
    mutationFn: async () =>
      body(
        api.POST('/api/v1/pending/{pending_id}/escalate', {
          params: { path: { pending_id: card.id } },
          body: { to: to.trim(), note: note.trim() },
        }),
      ),
    onSuccess: () => {
      toast(words.cards.passedOn(to.trim()));
      void queryClient.invalidateQueries({ queryKey: keys.card(card.id) });
      onClose();
    },
  });
  useKeys({ Escape: onClose });
  function submit(event: SubmitEvent) {
    event.preventDefault();
    if (to.trim() !== '') passOn.mutate();
  }
  return (
    <form className={pieces.form} onSubmit={submit}>
      <Field
        label={words.cards.passOnTo}
        error={passOn.error && <Foreign text={Problem.of(passOn.error).detail} block />}
      >
        {(field) => (
          <Input {...field} autoFocus placeholder="acme:eva" value={to} onChange={(event) => setTo(event.target.value)} />
        )}
      </Field>
      <Field label={words.cards.note}>
        {(field) => <Input {...field} value={note} onChange={(event) => setNote(event.target.value)} />}
      </Field>
      <div className="row">
        <Button type="submit" size="l" look="primary" disabled={passOn.isPending || to.trim() === ''}>
          {words.cards.passOn}
        </Button>
        <Button look="ghost" size="l" onClick={onClose}>
          {words.cancel}
        </Button>
      </div>
    </form>
  );
}
