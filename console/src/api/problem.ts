/** A refused request: problem details of RFC 9457, or the browser's error for a request without a response. */

import { gatewayNow } from '../format/clock';
import { words } from '../words';

interface ProblemFields {
  status: number;
  code: string;
  detail: string;
  errors?: string[];
  retryAfter?: number;
  /** Everything else that the server said, such as the card of an answered question. */
  more?: Record<string, unknown>;
}

export class Problem extends Error {
  /** 0 when no answer came at all. */
  readonly status: number;
  readonly code: string;
  readonly detail: string;
  /** Messages for single fields, such as `$.euro: must be a number`. */
  readonly errors: string[];
  /** Seconds to wait before the next request. */
  readonly retryAfter: number | undefined;
  readonly more: Record<string, unknown>;
  readonly at = gatewayNow();

  constructor({ status, code, detail, errors = [], retryAfter, more = {} }: ProblemFields) {
    super(detail);
    this.name = 'Problem';
    this.status = status;
    this.code = code;
    this.detail = detail;
    this.errors = errors;
    this.retryAfter = retryAfter;
    this.more = more;
  }

  /** Any error as a problem: other errors are requests without a response, or bugs of this page. */
  static of(error: unknown): Problem {
    if (error instanceof Problem) return error;
    if (error instanceof TypeError) return new Problem({ status: 0, code: 'unreachable', detail: words.unreachable });
    return new Problem({ status: 0, code: 'unexpected', detail: error instanceof Error ? error.message : String(error) });
  }

  /** The problem that a response is, whatever its body. */
  static async from(response: Response): Promise<Problem> {
    const body = await readBody(response);
    const { code, detail, title, errors, ...more } = body;
    return new Problem({
      status: response.status,
      code: typeof code === 'string' ? code : `http_${response.status}`,
      detail: firstText(detail, title) ?? words.refused(response.status),
      errors: Array.isArray(errors) ? errors.filter((one) => typeof one === 'string') : [],
      retryAfter: seconds(response.headers.get('retry-after')),
      more,
    });
  }
}

async function readBody(response: Response): Promise<Record<string, unknown>> {
  if (!(response.headers.get('content-type') ?? '').includes('json')) return {};
  try {
    const body: unknown = await response.json();
    return typeof body === 'object' && body !== null ? (body as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

function firstText(...candidates: unknown[]): string | undefined {
  return candidates.find((one): one is string => typeof one === 'string' && one !== '');
}

function seconds(header: string | null): number | undefined {
  const value = Number(header);
  return header === null || Number.isNaN(value) ? undefined : value;
}
