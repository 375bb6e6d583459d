import type { PendingAction } from '../types';

/** Whether an action offers a decision, and this person may make it. */
export function offers({ answers, viewer }: PendingAction, decision: string): boolean {
  return answers.some((answer) => answer.decision === decision) && (!viewer || viewer.may.includes(decision));
}
