import { expect, it } from 'vitest';

import { json } from './search-params';

it.each([
  [{ args: { url: 'https://example.com' } }, '{"url":"https://example.com"}'],
  [{ args: '{"euro": ' }, '{"euro": '],
  [{}, undefined],
])('JSON of the address %j is the text %j', (raw, expected) => {
  expect(json(raw, 'args')).toBe(expected);
});
