import type { PendingAction } from '../types';

/** Whether an action offers a decision, and this person may make it. */
export function offers({ answers, viewer }: PendingAction, decision: string): boolean {
  return answers.some((answer) => answer.decision === decision) && (!viewer || viewer.may.includes(decision));
}

/** Why this person can only deny an open card; undefined if they can answer it in other ways, or not at all. */
export function whyOnlyDeny({ viewer }: PendingAction): string | undefined {
  return viewer?.may.join() === 'deny' ? (viewer.why_not ?? undefined) : undefined;
}
