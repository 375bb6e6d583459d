import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { act } from 'react';
import { describe, expect, it } from 'vitest';

import { ExactNumber, type JsonObject } from '../schema/json';
import { button, press, show } from '../testing';
import { toCsv } from './csv';
import Markdown from './Markdown';
import { ResultView } from './ResultView';
import { sortRows, tableOf } from './table-data';
import { shortOf, spellPath, treeRows } from './tree';

describe('CSV', () => {
  it('quotes commas, quotes and line breaks, and leaves out what is missing', () => {
    expect(toCsv(['a', 'b,c'], [['x "y"', 'line\nbreak'], [null, undefined], [1, new ExactNumber('1e400')], [{ k: 1 }, true]])).toBe(
      'a,"b,c"\r\n"x ""y""","line\nbreak"\r\n,\r\n1,1e400\r\n"{""k"":1}",true\r\n',
    );
  });

  it.each(['=1+1', '+1', '-1+2', '@SUM(A1)', '\t=1'])('does not let a spreadsheet run %j', (formula) => {
    expect(toCsv(['x'], [[formula]]).split('\r\n')[1]?.replace(/^"/, '')).toMatch(/^'/);
  });
});

describe('a table', () => {
  it('is a list of objects, or the one list of an object', () => {
    expect(tableOf([{ a: 1 }, { b: 2 }])?.columns).toEqual(['a', 'b']);
    expect(tableOf({ next: null, items: [{ a: 1 }] })?.rows).toEqual([{ a: 1 }]);
    expect(tableOf([1, 2])).toBeUndefined();
    expect(tableOf({ a: [{}], b: [{}] })).toBeUndefined();
    expect(tableOf([])).toBeUndefined();
  });

  it('sorts numbers by value and keeps what is missing last', () => {
    const rows: JsonObject[] = [{ n: 10 }, { n: 9 }, {}, { n: new ExactNumber('1e3') }];
    expect(sortRows(rows, { column: 'n', descending: false }).map((row) => row.n)).toEqual([9, 10, new ExactNumber('1e3'), undefined]);
    expect(sortRows(rows, { column: 'n', descending: true }).at(-1)).toEqual({});
  });
});

describe('a tree', () => {
  const value = { id: 're_1', lines: [{ sku: 'LAMP', quantity: 1 }], customer: { 'odd name': { deep: { deeper: 'here' } } } };

  it('is open near the root', () => {
    expect(treeRows(value, new Map()).map((row) => row.pointer)).toEqual(['', '/id', '/lines', '/lines/0', '/customer', '/customer/odd name']);
  });

  it('shows what fits a search, and what that is inside of', () => {
    const rows = treeRows(value, new Map(), 'HERE');
    expect(rows.map((row) => row.pointer)).toEqual(['', '/customer', '/customer/odd name', '/customer/odd name/deep', '/customer/odd name/deep/deeper']);
    expect(rows.at(-1)?.found).toBe(true);
  });

  it('spells paths as programs do, and closed values in short', () => {
    expect(spellPath(['lines', 0, 'odd name'])).toBe('$.lines[0]["odd name"]');
    expect(shortOf({ a: 1, b: 2 })).toBe('{ a, b }');
    expect(shortOf([1, 2, 3])).toBe('[ 3 ]');
  });

  it('takes a list of a hundred thousand in one go', () => {
    const rows = treeRows(Array.from({ length: 100_000 }, (_, index) => index), new Map([['', true]]));
    expect(rows).toHaveLength(100_001);
  });
});

describe('Markdown of a stranger', () => {
  it.each([
    '<script>alert(1)</script>',
    '<img src=x onerror=alert(1)>',
    '<iframe src="javascript:alert(1)"></iframe>',
    'a <b onmouseover=alert(1)>b</b>',
    '<style>*{display:none}</style>',
    '![x](https://evil.example/pixel.png)',
    '[x](javascript:alert(1))',
    '[x](data:text/html,<script>alert(1)</script>)',
    '[x](https://evil.example "title")',
    '<https://evil.example>',
    '[ref]\n\n[ref]: javascript:alert(1)',
    '<svg><script>1</script></svg>',
  ])('%j stays text, and loads nothing', (text) => {
    const place = show(<Markdown text={text} />);
    expect(place.querySelector('script, img, iframe, style, svg, b, object, form')).toBeNull();
    for (const link of place.querySelectorAll('a')) {
      expect(link.protocol).toMatch(/^https?:$/);
      expect(link.rel).toBe('noopener noreferrer');
    }
  });

  it('shows the host of a link, and characters that deceive by number', () => {
    const place = show(<Markdown text={'[our bank](https://evil.example/login) \u202e'} />);
    expect(place.textContent).toContain('our bank https://evil.example');
    expect(place.textContent).toContain('⟦U+202E⟧');
  });

  it('has headings, lists, tables and code', () => {
    const place = show(<Markdown text={'# A\n\n- one\n- **two**\n\n1. x\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```js\n1 < 2\n```\n'} />);
    expect(place.querySelector('[role="heading"]')?.textContent).toBe('A');
    expect(place.querySelectorAll('li')).toHaveLength(3);
    expect(place.querySelectorAll('td')).toHaveLength(2);
    expect(place.querySelector('pre')?.textContent).toBe('1 < 2');
  });
});

describe('a result', () => {
  const open = (content: unknown, untrusted = false) =>
    show(
      <QueryClientProvider client={new QueryClient()}>
        <ResultView content={content} name="orders" untrusted={untrusted} />
      </QueryClientProvider>,
    );

  it('of a list of objects is a table that can be sorted', () => {
    const place = open([{ n: 2 }, { n: 10 }]);
    expect(place.querySelector('table')).not.toBeNull();
    press(button(place, 'n'));
    expect(place.querySelector('th')?.getAttribute('aria-sort')).toBe('ascending');
  });

  it('of an object is a tree, and also raw', () => {
    const place = open({ id: 1 });
    expect(place.querySelector('[role="tree"]')).not.toBeNull();
    press(button(place, 'Raw'));
    expect(place.querySelector('pre')?.textContent).toBe('{\n  "id": 1\n}');
  });

  it('of a text that is JSON is shown as what it means', () => {
    expect(open('{"a": 1}').querySelector('[role="tree"]')).not.toBeNull();
  });

  it('of a text in Markdown is rendered', async () => {
    const place = open('# Title\n\ntext');
    await act(async () => {
      await import('./Markdown');
    });
    expect(place.textContent).toContain('Title');
  });

  it.each([['text'], [5], [null], [true], [''], [[]], [{}]])('%j is shown', (content) => {
    expect(() => open(content)).not.toThrow();
  });

  it('of an untrusted source is marked', () => {
    expect(open('buy now', true).textContent).toContain('Untrusted content');
  });
});
