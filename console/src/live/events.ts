/** Events as views read them: a known type and a payload whose texts and numbers are asked for by name. */

import type { Event } from '../api/types';
import type { ServerEvent } from './sse';

export type { Event } from '../api/types';

/** The event in a message of the stream; undefined for messages of another shape. */
export function eventOf({ data }: ServerEvent): Event | undefined {
  try {
    const event = JSON.parse(data) as Partial<Event>;
    return typeof event.id === 'number' && typeof event.type === 'string' ? (event as Event) : undefined;
  } catch {
    return undefined;
  }
}

export function textOf({ payload }: Event, name: string): string {
  const value = payload[name];
  return typeof value === 'string' ? value : '';
}

export function numberOf({ payload }: Event, name: string): number | undefined {
  const value = payload[name];
  return typeof value === 'number' ? value : undefined;
}
