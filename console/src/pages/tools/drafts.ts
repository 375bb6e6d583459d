/** Arguments that a person typed, kept in this tab for each tool, without its secrets. */

import { stringify, type Json } from '../../schema/json';
import { tryParse } from '../../schema/parse';
import type { JsonSchema } from '../../schema/resolve';
import { withoutSecrets } from '../../schema/secrets';

const PREFIX = 'toolpost.try.';
const LARGEST = 100_000;

export function keepDraft(tool: string, value: Json, schema: JsonSchema): void {
  const text = stringify(withoutSecrets(value, schema, { schema }));
  if (text.length > LARGEST) return;
  try {
    sessionStorage.setItem(PREFIX + tool, text);
  } catch {
    // The storage is full; the draft is only in the page.
  }
}

export function readDraft(tool: string): Json | undefined {
  const text = sessionStorage.getItem(PREFIX + tool);
  if (text === null) return undefined;
  const parsed = tryParse(text);
  return 'value' in parsed ? parsed.value : undefined;
}
