/** Fields of the API that its document does not have yet. */

export interface CardExtras {
  /** Words of strangers in the arguments: where, and which call read them. */
  taint?: { path: string; begin: number; end: number; call_id: string; tool: string; origin: string; at: number }[];
}

/** What the policy decides about a call, without making it. */
export interface Explanation {
  action: 'allow' | 'ask' | 'deny';
  reason: string;
  rule: { index: number; text: string } | null;
  answerers: string[] | null;
  four_eyes: boolean;
  issues: string[];
}

/** Fields of a run that some gateways do not send yet. */
export interface RunExtras {
  caller?: string | null;
  source?: string | null;
  error_code?: string | null;
  duration_ms?: number | null;
  work_ms?: number | null;
  waited_ms?: number | null;
  pending_ids?: string[];
  progress?: { text: string; fraction: number | null } | null;
}
