import type { ReactNode } from 'react';

import type { PendingAction } from '../types';
import { Button } from '../ui/Button';
import { Foreign } from '../ui/Foreign';
import { words } from '../words';
import { usePressGuard } from './use-press';

export interface Choice {
  label: string;
  value: unknown;
}

const MOST_BUTTONS = 5;

/** The answer to a question of few choices: a button for each. */
export function ChoiceAnswer({
  action,
  choices,
  onAnswer,
  children,
}: {
  action: PendingAction;
  choices: readonly Choice[];
  onAnswer: (value: unknown) => void;
  children?: ReactNode;
}) {
  const guarded = usePressGuard(action.id);
  return (
    <>
      {choices.map(({ label, value }) => (
        <Button key={label} size="l" onClick={guarded(() => onAnswer(value))}>
          <Foreign text={label} />
        </Button>
      ))}
      <span className="end">{children}</span>
    </>
  );
}

/** The schema of the value that a question asks for. */
export function valueSchema(action: PendingAction): Record<string, unknown> {
  const properties = action.answers.find((one) => one.decision === 'answer')?.schema.properties;
  return asRecord(asRecord(properties).value);
}

/** The choices of a yes or no, or of a short enumeration; undefined for any other question. */
export function choicesOf(schema: Record<string, unknown>): Choice[] | undefined {
  if (schema.type === 'boolean') {
    return [
      { label: words.cards.yes, value: true },
      { label: words.cards.no, value: false },
    ];
  }
  const choices = schema.enum;
  if (!Array.isArray(choices) || choices.length > MOST_BUTTONS) return undefined;
  return choices.map((value: unknown) => ({ label: typeof value === 'string' ? value : JSON.stringify(value), value }));
}

function asRecord(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}
