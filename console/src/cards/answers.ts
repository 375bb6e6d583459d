/**
 * Answers under way. One press sends one answer: the first takes the card, and everything after that waits for what came
 * of it. Kept outside of components, so that one may look at another card meanwhile.
 */

import { useSyncExternalStore } from 'react';

import { api, body } from '../api/client';
import { Problem } from '../api/problem';
import { keys } from '../api/queries';
import { queryClient } from '../api/query-client';
import { session } from '../api/session';
import type { Answer, Card, Outcome } from '../api/types';

export type Phase =
  | { at: 'open' }
  | { at: 'sending'; decision: Answer['decision'] }
  /** It takes longer: most likely the call runs. */
  | { at: 'running'; decision: Answer['decision'] }
  /** The connection was lost; it is not known yet whether the answer arrived. */
  | { at: 'unconfirmed'; decision: Answer['decision'] }
  | { at: 'ended'; decision: Answer['decision']; outcome: Outcome | undefined }
  /** Someone else was faster. */
  | { at: 'elsewhere' }
  /** The answer was not taken; the question is still open. */
  | { at: 'refused'; problem: Problem };

const OPEN: Phase = { at: 'open' };
const RUNNING_AFTER_MS = 800;
const CONFIRM_EVERY_MS = 2000;

const phases = new Map<string, Phase>();
const listeners = new Set<() => void>();
const finished = new Set<(card: Card, phase: Phase) => void>();

export function phaseOf(id: string): Phase {
  return phases.get(id) ?? OPEN;
}

export function usePhase(id: string): Phase {
  return useSyncExternalStore(subscribe, () => phaseOf(id));
}

export function isBusy({ at }: Phase): boolean {
  return at === 'sending' || at === 'running' || at === 'unconfirmed';
}

/** Subscribe to the ends of answers. */
export function onFinished(listener: (card: Card, phase: Phase) => void): () => void {
  finished.add(listener);
  return () => finished.delete(listener);
}

/** Send an answer, unless one is under way or has been given. */
export async function answerCard(card: Card, answer: Answer): Promise<void> {
  const { at } = phaseOf(card.id);
  if (at !== 'open' && at !== 'refused') return;
  const { decision } = answer;
  setPhase(card.id, { at: 'sending', decision });
  const slow = setTimeout(() => setPhase(card.id, { at: 'running', decision }), RUNNING_AFTER_MS);
  let end: Phase;
  try {
    end = { at: 'ended', decision, outcome: await send(card.id, answer) };
  } catch (error) {
    clearTimeout(slow);
    end = await afterProblem(card, answer, Problem.of(error));
  }
  clearTimeout(slow);
  finish(card, end);
}

async function send(id: string, answer: Answer): Promise<Outcome> {
  const answered = api.POST('/api/v1/pending/{pending_id}/answer', {
    params: { path: { pending_id: id } },
    body: answer,
  });
  // 202 is the answer to `mode: async`, which is not sent.
  return (await body(answered)) as Outcome;
}

async function afterProblem(card: Card, answer: Answer, problem: Problem): Promise<Phase> {
  if (problem.status === 409) return taken(card.id, answer.decision);
  const lost = problem.status === 0 || problem.status === 502 || problem.status === 504;
  return lost ? confirm(card, answer) : { at: 'refused', problem };
}

/** The connection was lost: ask what became of the card. One that is still open gets the same answer once more. */
async function confirm(card: Card, answer: Answer): Promise<Phase> {
  setPhase(card.id, { at: 'unconfirmed', decision: answer.decision });
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, CONFIRM_EVERY_MS));
    try {
      const now = await refetch(card.id);
      if (now.status !== 'open') return await taken(card.id, answer.decision);
      return { at: 'ended', decision: answer.decision, outcome: await send(card.id, answer) };
    } catch (error) {
      const problem = Problem.of(error);
      if (problem.status === 409) return taken(card.id, answer.decision);
      if (problem.status !== 0 && problem.status < 500) return { at: 'refused', problem };
    }
  }
}

/** The card was answered already: by this person with the same decision, which is equivalent, or by someone else. */
async function taken(id: string, decision: Answer['decision']): Promise<Phase> {
  const card = await refetch(id);
  const same = card.answer?.decision === decision && card.answered_by === session()?.me.user;
  return same ? { at: 'ended', decision, outcome: undefined } : { at: 'elsewhere' };
}

async function refetch(id: string): Promise<Card> {
  const card: Card = await body(api.GET('/api/v1/pending/{pending_id}', { params: { path: { pending_id: id } } }));
  queryClient.setQueryData(keys.card(id), card);
  return card;
}

function finish(card: Card, phase: Phase): void {
  setPhase(card.id, phase);
  if (phase.at !== 'refused') {
    queryClient.setQueryData<Card[]>(keys.openCards, (cards) => cards?.filter((one) => one.id !== card.id));
    void queryClient.invalidateQueries({ queryKey: keys.closedCards });
  }
  void queryClient.invalidateQueries({ queryKey: keys.card(card.id) });
  for (const listener of finished) listener(card, phase);
}

function setPhase(id: string, phase: Phase): void {
  phases.set(id, phase);
  tell();
}

function tell(): void {
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
