import pieces from '@toolpost/approval-card/card/card.module.css';
import { useState, type ReactNode } from 'react';

import { plain, type Json } from '../../schema/json';
import { initialValue } from '../../schema/initial';
import type { JsonSchema } from '../../schema/resolve';
import { SchemaForm } from '../../schema/SchemaForm';
import { validate } from '../../schema/validate';
import { Button } from '../../ui/Button';
import { words } from '../../words';

interface AnswerFormProps {
  schema: JsonSchema;
  onSend: (value: unknown) => void;
  children: ReactNode;
}

/** The answer to a question, in the form that its schema asks for. */
export default function AnswerForm({ schema, onSend, children }: AnswerFormProps) {
  const [value, setValue] = useState<Json>(() => initialValue(schema, { schema }));
  const [showAll, setShowAll] = useState(false);
  const [broken, setBroken] = useState(false);
  return (
    <form
      className={pieces.form}
      onSubmit={(event) => {
        event.preventDefault();
        setShowAll(true);
        if (!broken && validate(value, schema).length === 0) onSend(plain(value));
      }}
    >
      <SchemaForm schema={schema} value={value} onChange={setValue} showAll={showAll} onBroken={setBroken} />
      <div className="row">
        <Button type="submit" look="primary" size="l">
          {words.cards.answer}
        </Button>
        {children}
      </div>
    </form>
  );
}
