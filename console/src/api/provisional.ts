/** Fields of the API that its document does not have yet. */

export interface CardExtras {
  /** Words of strangers in the arguments: where, and which call read them. */
  taint?: { path: string; begin: number; end: number; call_id: string; tool: string; origin: string; at: number }[];
}
