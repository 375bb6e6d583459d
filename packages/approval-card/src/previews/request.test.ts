import { describe, expect, it } from 'vitest';

import type { PendingAction } from '../types';
import { commandOf, requestOf } from './request';

const card = (preview: object, values: object) => ({ preview, arguments: values }) as unknown as PendingAction;

describe('a request', () => {
  it('has the arguments of its template in the URL, and the others below', () => {
    const view = requestOf(
      card({ kind: 'http_request', text: 'POST https://x.example/orders/{order}/refunds' }, { order: 7, euro: 9 }),
    );
    expect(view.method).toBe('POST');
    expect(view.url).toEqual([
      { text: 'https://x.example/orders/', filled: false },
      { text: '7', filled: true },
      { text: '/refunds', filled: false },
    ]);
    expect(view.body).toEqual({ euro: 9 });
    expect(view.guessed).toBe(true);
  });

  it('is shown as the gateway describes it', () => {
    const view = requestOf(
      card(
        { kind: 'http_request', text: '', method: 'GET', url: 'https://x.example/a', headers: [], query: [{ name: 'a', value: '1' }] },
        { order: 7 },
      ),
    );
    expect(view).toMatchObject({ method: 'GET', query: [{ name: 'a', value: '1' }], body: undefined, guessed: false });
  });
});

describe('a command', () => {
  it('is one chip a word, with the arguments put in', () => {
    const words = commandOf(card({ kind: 'command', text: "echo rollout '{service}' --tag '{tag}'" }, { service: 'a b', tag: 'v2' }));
    expect(words.map((word) => word.map((part) => part.text).join(''))).toEqual(['echo', 'rollout', 'a b', '--tag', 'v2']);
    expect(words[2]).toEqual([{ text: 'a b', filled: true }]);
  });

  it('keeps an argument that looks like several words in one', () => {
    const words = commandOf(card({ kind: 'command', text: "rm '{file}'" }, { file: "x'; rm -rf /" }));
    expect(words).toHaveLength(2);
  });
});
