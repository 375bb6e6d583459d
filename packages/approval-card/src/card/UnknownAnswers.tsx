import { useState } from 'react';

import type { Answer, PendingAction } from '../types';
import { Button } from '../ui/Button';
import { Field, TextArea } from '../ui/Field';
import { words } from '../words';
import styles from './card.module.css';
import { usePressGuard } from './use-press';

interface UnknownAnswersProps {
  action: PendingAction;
  onAnswer: (answer: Answer) => void;
}

/** What happened to a call whose process ended: three equal answers, each with what follows. */
export function UnknownAnswers({ action, onAnswer }: UnknownAnswersProps) {
  const guarded = usePressGuard(action.id);
  const [step, setStep] = useState<'choose' | 'result' | 'sure'>('choose');
  if (step === 'result') return <ResultForm onAnswer={onAnswer} onClose={() => setStep('choose')} />;
  const rerun = () => (step === 'sure' ? onAnswer({ decision: 'rerun' }) : setStep('sure'));
  return (
    <div className={styles.three}>
      <Way label={words.cards.happened} means={words.cards.happenedMeans} onPress={guarded(() => setStep('result'))} />
      <Way
        label={words.cards.notHappened}
        means={words.cards.notHappenedMeans}
        onPress={guarded(() => onAnswer({ decision: 'not_happened' }))}
      />
      <Way
        label={step === 'sure' ? words.cards.rerunSure : words.cards.rerun}
        means={words.cards.rerunMeans}
        onPress={guarded(rerun)}
      />
    </div>
  );
}

function Way({ label, means, onPress }: { label: string; means: string; onPress: () => void }) {
  return (
    <div>
      <Button size="l" onClick={onPress}>
        {label}
      </Button>
      <p className="t12 soft">{means}</p>
    </div>
  );
}

function ResultForm({ onAnswer, onClose }: { onAnswer: (answer: Answer) => void; onClose: () => void }) {
  const [text, setText] = useState('');
  return (
    <div className={styles.form}>
      <Field label={words.cards.result}>
        {(field) => <TextArea {...field} autoFocus value={text} onChange={(event) => setText(event.target.value)} />}
      </Field>
      <div className="row">
        <Button
          size="l"
          onClick={() => onAnswer({ decision: 'happened', ...(text.trim() !== '' && { value: jsonOrText(text) }) })}
        >
          {words.cards.happened}
        </Button>
        <Button look="ghost" size="l" onClick={onClose}>
          {words.cancel}
        </Button>
      </div>
    </div>
  );
}

function jsonOrText(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}
