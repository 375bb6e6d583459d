import { expect, it } from 'vitest';

import { isOwnPath } from './own-path';

it.each(['/', '/approvals/ask_1', '/runs?q=a'])('%s is a path of this console', (path) => {
  expect(isOwnPath(path)).toBe(true);
});

it.each(['//example.com', '/\\example.com', 'https://example.com', 'javascript:alert(1)', '', 'approvals'])(
  '%j is not',
  (path) => {
    expect(isOwnPath(path)).toBe(false);
  },
);
