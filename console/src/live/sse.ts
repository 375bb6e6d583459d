/** Server-sent events, read from a response: `EventSource` cannot send a bearer. */

export interface ServerEvent {
  /** Empty for the default type. */
  type: string;
  data: string;
  /** The last id that the stream has named. */
  id: string;
}

/** Puts events together from text that arrives in pieces of any size. */
export class EventParser {
  private rest = '';
  private type = '';
  private data: string[] = [];
  private id = '';

  /** The events that are complete with this piece. */
  push(piece: string): ServerEvent[] {
    const lines = (this.rest + piece).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop() ?? '';
    return lines.flatMap((line) => this.take(line));
  }

  private take(line: string): ServerEvent[] {
    if (line === '') return this.finish();
    const colon = line.indexOf(':');
    if (colon === 0) return [];
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (name === 'event') this.type = value;
    else if (name === 'data') this.data.push(value);
    else if (name === 'id' && !value.includes('\0')) this.id = value;
    return [];
  }

  private finish(): ServerEvent[] {
    const { type, data, id } = this;
    this.type = '';
    this.data = [];
    return data.length > 0 ? [{ type, data: data.join('\n'), id }] : [];
  }
}

/** The events of a response, until it ends. */
export async function* readEvents(response: Response): AsyncGenerator<ServerEvent> {
  if (!response.body) return;
  const parser = new EventParser();
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield* parser.push(decoder.decode(value, { stream: true }));
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
