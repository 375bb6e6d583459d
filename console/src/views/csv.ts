/** Comma-separated values (RFC 4180). */

import { stringify, type Json } from '../schema/json';

// A spreadsheet takes a text that begins like this for a formula, and would run it.
const FORMULA = /^[=+\-@\t\r]/;

/** Rows below their header as CSV. */
export function toCsv(header: readonly string[], rows: readonly (readonly (Json | undefined)[])[]): string {
  const lines = [header.map(quote), ...rows.map((row) => row.map((cell) => cellText(cell)))];
  return lines.map((line) => line.join(',')).join('\r\n') + '\r\n';
}

function cellText(cell: Json | undefined): string {
  if (cell === undefined || cell === null) return '';
  return typeof cell === 'string' ? quote(cell) : quoteIfNeeded(stringify(cell));
}

function quote(text: string): string {
  return quoteIfNeeded(FORMULA.test(text) ? `'${text}` : text);
}

function quoteIfNeeded(text: string): string {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
