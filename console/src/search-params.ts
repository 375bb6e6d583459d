/** Filters of pages as they are in the address: typed, and without what is not set. */

type Raw = Record<string, unknown>;

export function text(raw: Raw, name: string): string | undefined {
  const value = raw[name];
  if (typeof value === 'number') return String(value);
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** JSON as text: the router has parsed what looks like an object. */
export function json(raw: Raw, name: string): string | undefined {
  const value = raw[name];
  return typeof value === 'object' && value !== null ? JSON.stringify(value) : text(raw, name);
}

export function number(raw: Raw, name: string): number | undefined {
  const value = Number(raw[name]);
  return raw[name] === undefined || Number.isNaN(value) ? undefined : value;
}

export function oneOf<Value extends string>(raw: Raw, name: string, values: readonly Value[]): Value | undefined {
  return values.find((value) => value === raw[name]);
}

/** The parameters that are set. */
export function given<Search extends object>(search: Search): Partial<Search> {
  return Object.fromEntries(Object.entries(search).filter(([, value]) => value !== undefined)) as Partial<Search>;
}

/** Texts by name, each of which may be missing. */
export function texts<Name extends string>(raw: Raw, ...names: Name[]): Partial<Record<Name, string>> {
  const found: Partial<Record<Name, string>> = {};
  for (const name of names) {
    const value = text(raw, name);
    if (value !== undefined) found[name] = value;
  }
  return found;
}
