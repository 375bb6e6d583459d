/**
 * What the address of the page brought along: the ticket of a sign-in, or the answer of a service. Both are secrets, so
 * this module takes them out of the address as it is loaded, before anything else can read, keep or send them.
 */

const TICKET = /^#t=([\w.~-]+)$/;
const CALLBACK = /\/oauth\/callback\/([^/]+)$/;

export interface ServiceAnswer {
  service: string;
  /** `code`, `state`, `iss`, `error` and what else the service sent. */
  parameters: Record<string, string>;
}

function takeTicket(): string | undefined {
  const ticket = TICKET.exec(location.hash)?.[1];
  if (ticket !== undefined) history.replaceState(null, '', location.pathname + location.search);
  return ticket;
}

function takeServiceAnswer(): ServiceAnswer | undefined {
  const service = CALLBACK.exec(location.pathname)?.[1];
  if (service === undefined || location.search === '') return undefined;
  const parameters = Object.fromEntries(new URLSearchParams(location.search));
  history.replaceState(null, '', location.pathname);
  return { service: decodeURIComponent(service), parameters };
}

export const arrivedTicket = takeTicket();
export const arrivedAnswer = takeServiceAnswer();
