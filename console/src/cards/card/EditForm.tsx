import pieces from '@toolpost/approval-card/card/card.module.css';
import { useEffect, useRef, useState } from 'react';

import type { Card } from '../../api/types';
import { fromPlain, type Json } from '../../schema/json';
import { changesBetween, plainChanges } from '../../schema/patch';
import { schemaOf, type JsonSchema } from '../../schema/resolve';
import { SchemaForm } from '../../schema/SchemaForm';
import { parseIssue } from '../../schema/validate';
import { useKeys } from '../../shell/keys';
import { Button } from '../../ui/Button';
import { DoneIcon } from '../../ui/icons';
import { words } from '../../words';
import { answerCard, isBusy, phaseOf, usePhase } from '../answers';
import { forgetDraft, keepDraft, keptDraft } from '../drafts';
import { AnswerState } from './AnswerState';
import { ChangedPreview } from './ChangedPreview';
import styles from './card.module.css';

const MASK = '[redacted]';

/** The arguments as a form. What is sent is only what changed; masked values stay as they were requested. */
export default function EditForm({ card, onClose }: { card: Card; onClose: () => void }) {
  const phase = usePhase(card.id);
  const schema = inputSchema(card);
  const [original] = useState(() => fromPlain(card.arguments));
  const [value, setValue] = useState<Json>(() => keptDraft(card) ?? original);
  const [broken, setBroken] = useState(false);
  const form = useRef<HTMLElement>(null);
  const changes = plainChanges(changesBetween(original, value));
  const sendsMask = JSON.stringify(changes).includes(MASK);
  const frozen = card.status !== 'open' || isBusy(phase) || phase.at === 'elsewhere';
  const issues = phase.at === 'refused' ? phase.problem.errors.map(parseIssue) : [];

  useEffect(() => {
    form.current?.scrollIntoView({ block: 'start', behavior: 'smooth' }); // Gives a promise in newer browsers.
  }, []);
  useKeys({ Escape: onClose });

  function change(next: Json) {
    setValue(next);
    keepDraft(card, next, schema);
  }
  async function send() {
    await answerCard(card, { decision: 'modify', changes });
    if (phaseOf(card.id).at === 'refused') return;
    forgetDraft(card);
    onClose();
  }

  return (
    <section ref={form} className={pieces.section}>
      <div className={pieces.panel}>
        <div className={pieces.head}>
          <h3>{words.cards.changes}</h3>
          {changes.length === 0 && <span className="faint t12 cut">{words.cards.changesNote}</span>}
        </div>
        <div className={styles.edit}>
          {card.status !== 'open' && <p className="wait-ink">{words.cards.frozen}</p>}
          <SchemaForm
            schema={schema}
            value={value}
            onChange={change}
            original={original}
            masked={card.masked}
            issues={issues}
            disabled={frozen}
            onBroken={setBroken}
          />
        </div>
        {!frozen && changes.length > 0 && !broken && !sendsMask && card.preview && <ChangedPreview card={card} changes={changes} />}
        <div className={pieces.foot}>
          {phase.at === 'refused' && <AnswerState card={card} phase={phase} expired={false} onNext={onClose} />}
          {sendsMask && <p className={pieces.problem}>{words.cards.redactedLeft}</p>}
          <Button
            look="primary"
            size="l"
            icon={DoneIcon}
            disabled={frozen || changes.length === 0 || broken || sendsMask}
            onClick={() => void send()}
          >
            {isBusy(phase) ? words.cards.sending : words.cards.approveWith(changes.length)}
          </Button>
          <Button look="ghost" size="l" onClick={onClose}>
            {words.cancel}
          </Button>
        </div>
      </div>
    </section>
  );
}

function inputSchema(card: Card): JsonSchema {
  return schemaOf(card.answers.find((answer) => answer.decision === 'modify')?.input_schema);
}
