/** Fields of the API that its document does not have yet. */

export interface CardExtras {
  /** Untrusted text in the arguments: where, and which call read it. */
  taint?: { path: string; begin: number; end: number; call_id: string; tool: string; origin: string; at: number }[];
}
