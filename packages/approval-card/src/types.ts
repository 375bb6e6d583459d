/** The objects of the REST API that a card reads and sends. */

/** A pending action as `GET /api/v1/pending/{id}` returns it. Fields that a gateway may leave out are optional. */
export interface PendingAction {
  id: string;
  status: 'open' | 'claimed' | 'answered' | 'denied' | 'expired' | 'cancelled';
  kind: 'approval' | 'consent' | 'input' | 'restart' | 'unknown';
  reason?: string;
  tool_name: string;
  /** What the tool reaches, in one line. */
  target?: { summary?: string };
  prompt: string;
  payload: Record<string, unknown>;
  /** With secrets masked. */
  arguments: Record<string, unknown>;
  /** JSON Pointers of the masked arguments. */
  masked: string[];
  outcome?: object | null;
  preview?: PreviewData | null;
  /** Whether the preview was cut. */
  truncated?: boolean;
  answers: { decision: string; schema: Record<string, unknown> }[];
  answerers?: string[] | null;
  run_id?: string;
  asked_by: string;
  /** Unix time in seconds, like all times. */
  created_at: number;
  expires_at: number;
  tool?: { description: string; destructive: boolean | null } | null;
  caller?: { kind: string; name: string } | null;
  /** Untrusted content in the arguments, and the call that read it. */
  taint?: { tool: string; origin: string }[];
  answer?: { decision: string; reason?: string } | null;
  answered_by?: string | null;
  answered_at?: number | null;
  /** The decisions that the caller of the API may make, and why not the others. */
  viewer?: { may: string[]; why_not: string | null };
}

/** What a call would do. Which fields there are depends on the kind. */
export interface PreviewData {
  kind: string;
  /** The diff or text, or one line about the request or command. */
  text: string;
  columns?: string[];
  rows?: unknown[][];
  total?: number;
  method?: string;
  url?: string;
  query?: { name: string; value: string }[] | string;
  headers?: { name: string; value: string | null; masked_by: string | null }[];
  content_type?: string | null;
  body?: string | null;
  argv?: string[];
  cwd?: string | null;
  env_names?: string[];
  stdin?: string | null;
}

/** The body of `POST /api/v1/pending/{id}/answer`. */
export interface Answer {
  decision: 'approve' | 'deny' | 'answer' | 'happened' | 'not_happened' | 'rerun';
  /** Of `answer` and `happened`. */
  value?: unknown;
  /** Of `deny`: the caller of the tool reads it. */
  reason?: string;
}
