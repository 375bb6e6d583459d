/** A value as JSON; nothing for a value that JSON does not have. */
export function jsonText(value: unknown, indent?: number): string {
  return value === undefined ? '' : JSON.stringify(value, null, indent);
}
