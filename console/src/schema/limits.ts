/** The limits of a field in words, beside its name. */

import { formatCount } from '../format/number';
import { schemaWords } from '../words';
import type { Json } from './json';
import type { JsonSchema } from './resolve';
import type { Described } from './shape';

export function limitsOf({ shape, schema }: Described, value: Json | undefined): string {
  switch (shape.kind) {
    case 'number':
      return range(numberOr(schema.minimum, schema.exclusiveMinimum), numberOr(schema.maximum, schema.exclusiveMaximum));
    case 'text': {
      const most = asNumber(schema.maxLength);
      const length = typeof value === 'string' ? Array.from(value).length : 0;
      return most !== undefined || (shape.input === 'area' && length > 0) ? schemaWords.characters(length, most) : '';
    }
    case 'array':
    case 'choices':
      return itemLimits(schema, Array.isArray(value) ? value.length : 0);
    default:
      return '';
  }
}

function itemLimits(schema: JsonSchema, count: number): string {
  const unique = schema.uniqueItems === true ? `, ${schemaWords.unique}` : '';
  return schemaWords.ofItems(count, asNumber(schema.minItems), asNumber(schema.maxItems)) + unique;
}

function range(least: number | undefined, most: number | undefined): string {
  if (least !== undefined && most !== undefined) return schemaWords.or(formatCount(least), formatCount(most));
  if (most !== undefined) return schemaWords.upTo(formatCount(most));
  return least !== undefined && least !== 0 ? schemaWords.from(formatCount(least)) : '';
}

function asNumber(value: unknown): number | undefined {
  return typeof value === 'number' ? value : undefined;
}

function numberOr(...values: unknown[]): number | undefined {
  return values.find((value): value is number => typeof value === 'number');
}
