import { ChoiceAnswer, choicesOf, valueSchema } from '@toolpost/approval-card/card/ChoiceAnswer';
import { usePressGuard } from '@toolpost/approval-card/card/use-press';
import { Suspense } from 'react';

import type { Answer, Card } from '../../api/types';
import { Button } from '../../ui/Button';
import { lazyPart } from '../../ui/lazy-part';
import { words } from '../../words';

interface InputAnswerProps {
  card: Card;
  onAnswer: (answer: Answer) => void;
  onDeny: (() => void) | undefined;
}

const AnswerForm = lazyPart(() => import('./AnswerForm'));

/** The answer to a question of a tool: a button for each of few choices, or a form. */
export function InputAnswer({ card, onAnswer, onDeny }: InputAnswerProps) {
  const guarded = usePressGuard(card.id);
  const schema = valueSchema(card);
  const send = (value: unknown) => onAnswer({ decision: 'answer', value });
  const deny = onDeny && (
    <Button look="danger" size="l" hint="D" data-answer="deny" onClick={guarded(onDeny)}>
      {words.cards.deny}
    </Button>
  );
  const choices = choicesOf(schema);
  if (choices) {
    return (
      <ChoiceAnswer action={card} choices={choices} onAnswer={send}>
        {deny}
      </ChoiceAnswer>
    );
  }
  return (
    <Suspense>
      <AnswerForm schema={schema} onSend={send}>
        {deny}
      </AnswerForm>
    </Suspense>
  );
}
