import { describe, expect, it } from 'vitest';

import { EventParser, readEvents } from './sse';

const TEXT = ': listening\n\nid: 7\nevent: SOURCE_UP\ndata: {"a":1}\n\nid: 8\r\ndata: one\r\ndata: two\r\n\r\n';
const EVENTS = [
  { type: 'SOURCE_UP', data: '{"a":1}', id: '7' },
  { type: '', data: 'one\ntwo', id: '8' },
];

describe('a stream of events', () => {
  it('is read in one piece', () => {
    expect(new EventParser().push(TEXT)).toEqual(EVENTS);
  });

  it.each(Array.from({ length: TEXT.length - 1 }, (_, index) => index + 1))('is the same when cut at %i', (at) => {
    const parser = new EventParser();
    expect([...parser.push(TEXT.slice(0, at)), ...parser.push(TEXT.slice(at))]).toEqual(EVENTS);
  });

  it('is the same character by character', () => {
    const parser = new EventParser();
    expect(TEXT.split(/(?:)/).flatMap((character) => parser.push(character))).toEqual(EVENTS);
  });

  it('keeps an event back until its blank line', () => {
    expect(new EventParser().push('data: half')).toEqual([]);
  });

  it('may split a character between two pieces of bytes', async () => {
    const bytes = new TextEncoder().encode('data: Füße 👍\n\n');
    const pieces = new ReadableStream<Uint8Array>({
      start(controller) {
        for (const byte of bytes) controller.enqueue(new Uint8Array([byte]));
        controller.close();
      },
    });
    const seen = [];
    for await (const event of readEvents(new Response(pieces))) seen.push(event.data);
    expect(seen).toEqual(['Füße 👍']);
  });
});
