import { describe, expect, it } from 'vitest';

import type { PendingAction } from '../types';
import { commandOf, markedUrl, requestOf } from './request';

const card = (preview: object, values: object) => ({ preview, target: {}, arguments: values }) as unknown as PendingAction;

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

describe('the URL of a request', () => {
  const text = (url: string, template: string) => markedUrl(url, template).map((part) => (part.filled ? `<${part.text}>` : part.text)).join('');

  it.each([
    ['https://x.example/orders/7/refunds', 'POST https://x.example/orders/{order}/refunds', 'https://x.example/orders/<7>/refunds'],
    ['https://x.example/a/7/b', 'GET https://x.example/{kind}/{id}/{part}', 'https://x.example/<a>/<7>/<b>'],
    ['https://x.example/7', 'GET https://x.example/{id}', 'https://x.example/<7>'],
    ['https://x.example/orders', 'GET https://x.example/orders', 'https://x.example/orders'],
    ['https://y.example/orders/7', 'GET https://x.example/orders/{order}', 'https://y.example/orders/7'],
    ['https://x.example/orders/7', '', 'https://x.example/orders/7'],
    ['https://x.example/12', 'GET https://x.example/{a}{b}', 'https://x.example/12'],
  ])('%s of %s is marked where an argument stands', (url, template, marked) => {
    expect(text(url, template)).toBe(marked);
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
