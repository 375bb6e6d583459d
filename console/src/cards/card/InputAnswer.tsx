import { lazy, Suspense } from 'react';

import type { Answer, Card } from '../../api/types';
import { schemaOf, type JsonSchema } from '../../schema/resolve';
import { Button } from '../../ui/Button';
import { words } from '../../words';
import { usePressGuard } from './use-press';

interface InputAnswerProps {
  card: Card;
  onAnswer: (answer: Answer) => void;
  onDeny: (() => void) | undefined;
}

const AnswerForm = lazy(() => import('./AnswerForm'));
const MOST_BUTTONS = 5;

/** The answer to a question of a tool: two buttons for a yes or no, a button for each of few choices, or a form. */
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
      <>
        {choices.map(({ label, value }) => (
          <Button key={label} size="l" onClick={guarded(() => send(value))}>
            {label}
          </Button>
        ))}
        <span className="end">{deny}</span>
      </>
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

function valueSchema(card: Card): JsonSchema {
  const schema = schemaOf(card.answers.find((one) => one.decision === 'answer')?.schema);
  const properties = schema.properties as Record<string, unknown> | undefined;
  return schemaOf(properties?.value);
}

function choicesOf(schema: JsonSchema): { label: string; value: unknown }[] | undefined {
  if (schema.type === 'boolean') {
    return [
      { label: words.cards.yes, value: true },
      { label: words.cards.no, value: false },
    ];
  }
  const choices: unknown = schema.enum;
  if (!Array.isArray(choices) || choices.length > MOST_BUTTONS) return undefined;
  return choices.map((value: unknown) => ({ label: typeof value === 'string' ? value : JSON.stringify(value), value }));
}
