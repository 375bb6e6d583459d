/** The check of the event log, which reports how far it is. */

import { auditWords } from '../words';
import { requestTo, send } from './client';
import { Problem } from './problem';

export interface Verification {
  status: 'verified' | 'changed';
  problems: string[];
}

interface Verifying {
  status: 'verifying';
  verified: number;
  runs: number;
}

const NO_EVENTS = String(Number.MAX_SAFE_INTEGER);

/** Check the hashes of the event log, or of one run. The export of no events ends with the result. */
export async function verifyEvents(run: string | undefined, onProgress: (part: number) => void): Promise<Verification> {
  const query = new URLSearchParams({ verify: 'progress', after: NO_EVENTS, ...(run !== undefined && { run }) });
  const response = await send(requestTo(`/api/v1/audit?${query.toString()}`));
  for await (const text of linesOf(response)) {
    const line = JSON.parse(text) as Verification | Verifying;
    if (line.status !== 'verifying') return line;
    if (line.runs > 0) onProgress(line.verified / line.runs);
  }
  throw new Problem({ status: 0, code: 'no_body', detail: auditWords.noResult });
}

async function* linesOf(response: Response): AsyncGenerator<string> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (let part = await reader?.read(); part && !part.done; part = await reader?.read()) {
    const lines = (rest + part.value).split('\n');
    rest = lines.pop() ?? '';
    yield* lines;
  }
}
