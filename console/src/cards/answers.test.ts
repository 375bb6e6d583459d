import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { queryClient } from '../api/query-client';
import { keepSession } from '../api/session';
import type { Me } from '../api/types';
import type { Card } from '../api/types';
import { answerCard, phaseOf } from './answers';

const ME = { user: 'acme:ann' } as Me;
let CARD: Card;
let cards = 0;
const OUTCOME = { status: 'completed', content: 'paid' };

type Reply = { status: number; body: unknown } | 'lost';

let sent: { method: string; path: string; body: unknown }[];
let replies: Reply[];

function reply({ status, body }: { status: number; body: unknown }): Response {
  return new Response(JSON.stringify(body), { status, headers: { 'content-type': 'application/json' } });
}

beforeEach(() => {
  vi.useFakeTimers();
  queryClient.clear();
  cards += 1;
  CARD = { id: `ask_${cards}`, status: 'open' } as Card;
  sent = [];
  replies = [];
  keepSession({ token: 'tps_1', me: ME });
  vi.stubGlobal('fetch', async (request: Request) => {
    const text = await request.text();
    sent.push({ method: request.method, path: new URL(request.url).pathname, body: text ? JSON.parse(text) : undefined });
    const next = replies.shift();
    if (next === undefined || next === 'lost') throw new TypeError('Failed to fetch');
    return reply(next);
  });
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const posts = () => sent.filter((one) => one.method === 'POST').length;

describe('an answer', () => {
  it('is sent once, however often one presses', async () => {
    replies = [{ status: 200, body: OUTCOME }];
    const presses = [1, 2, 3].map(() => answerCard(CARD, { decision: 'approve' }));
    expect(phaseOf(CARD.id).at).toBe('sending');
    await Promise.all(presses);

    expect(posts()).toBe(1);
    expect(phaseOf(CARD.id)).toEqual({ at: 'ended', decision: 'approve', outcome: OUTCOME });
  });

  it('cannot follow another', async () => {
    replies = [{ status: 200, body: OUTCOME }];
    await answerCard(CARD, { decision: 'approve' });
    await answerCard(CARD, { decision: 'deny' });

    expect(posts()).toBe(1);
  });

  it('that another person gave first is news and not an error', async () => {
    replies = [
      { status: 409, body: { code: 'already_answered', detail: 'answered' } },
      { status: 200, body: { ...CARD, status: 'denied', answered_by: 'acme:eva', answer: { decision: 'deny' } } },
    ];
    await answerCard(CARD, { decision: 'approve' });

    expect(phaseOf(CARD.id)).toEqual({ at: 'elsewhere' });
  });

  it('that oneself gave in another tab is success', async () => {
    replies = [
      { status: 409, body: { code: 'already_answered', detail: 'answered' } },
      { status: 200, body: { ...CARD, status: 'answered', answered_by: 'acme:ann', answer: { decision: 'approve' } } },
    ];
    await answerCard(CARD, { decision: 'approve' });

    expect(phaseOf(CARD.id)).toEqual({ at: 'ended', decision: 'approve', outcome: undefined });
  });

  it('that was refused leaves the question open', async () => {
    replies = [{ status: 422, body: { code: 'invalid_arguments', detail: 'no', errors: ['$.euro: too much'] } }];
    await answerCard(CARD, { decision: 'modify', changes: [] });

    const phase = phaseOf(CARD.id);
    expect(phase.at === 'refused' && phase.problem.errors).toEqual(['$.euro: too much']);
  });

  it('whose connection is lost is asked about, and sent again while the question is open', async () => {
    replies = ['lost', 'lost', { status: 200, body: CARD }, { status: 200, body: OUTCOME }];
    const answering = answerCard(CARD, { decision: 'approve' });
    await vi.advanceTimersByTimeAsync(100);
    expect(phaseOf(CARD.id)).toEqual({ at: 'unconfirmed', decision: 'approve' });
    await vi.advanceTimersByTimeAsync(20_000);
    await answering;

    expect(posts()).toBe(2);
    expect(phaseOf(CARD.id)).toEqual({ at: 'ended', decision: 'approve', outcome: OUTCOME });
  });

  it('whose connection is lost is not sent again once it is known to have arrived', async () => {
    const arrived = { ...CARD, status: 'answered', answered_by: 'acme:ann', answer: { decision: 'approve' } };
    replies = ['lost', { status: 200, body: arrived }, { status: 200, body: arrived }];
    const answering = answerCard(CARD, { decision: 'approve' });
    await vi.advanceTimersByTimeAsync(20_000);
    await answering;

    expect(posts()).toBe(1);
    expect(phaseOf(CARD.id).at).toBe('ended');
  });
});
