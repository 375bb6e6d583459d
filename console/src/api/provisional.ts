/** Types of the API that its document does not have yet. */

export interface Me {
  user: string;
  tenant: string;
  scopes: string[];
  answers: string[];
  operator: boolean;
  caller: { kind: string; id: string; name: string };
  session: { id: string; expires_at: number | null } | null;
  server: {
    version: string;
    build: string | null;
    public_url: string;
    time: number;
    oidc: { issuer: string } | null;
    features: string[];
  };
}

export interface OpenedSession {
  token: string;
  expires_at: number | null;
  me: Me;
}

export interface SessionEntry {
  id: string;
  user: string;
  scopes: string[];
  opened_with: { kind: string; id: string };
  created_at: number;
  last_used_at: number;
  expires_at: number | null;
  current: boolean;
}

/** Fields of a card that some gateways do not send yet. */
export interface CardExtras {
  viewer?: { may: string[]; why_not: string | null };
  caller?: { kind: string; id: string; name: string };
  rule?: { index: number; of: number; action: string; text: string; file: string | null; line: number | null; reason: string };
  tool?: {
    description: string;
    origin: string | null;
    side_effects: string;
    destructive: boolean | null;
    replay: string;
    source: string | null;
    pinned_at: number | null;
  };
  taint?: { path: string; begin: number; end: number; call_id: string; tool: string; origin: string; at: number }[];
  truncated?: boolean;
}
