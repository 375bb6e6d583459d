/** The figures beside the entries of the sidebar. A figure that is not known is left out. */

import { useQuery } from '@tanstack/react-query';

import { openCardsQuery, runsQuery, sourcesQuery, toolTotalQuery } from '../api/queries';
import { useMe } from '../api/session';
import { mayAnswer } from '../cards/answering';
import type { Tone } from '../ui/tone';
import type { PagePath } from './navigation';

export interface Count {
  count: number;
  /** Waits for this person. */
  hot?: boolean;
  /** A dot before the figure. */
  tone?: Tone;
}

export function useCounts(): Partial<Record<PagePath, Count>> {
  const me = useMe();
  const cards = useQuery(openCardsQuery).data ?? [];
  const sources = useQuery(sourcesQuery).data ?? [];
  const running = useQuery(runsQuery).data?.items.filter((run) => run.status === 'running').length ?? 0;
  const tools = useQuery(toolTotalQuery).data ?? 0;
  const mine = cards.filter((card) => mayAnswer(card, me)).length;
  const down = sources.some((source) => source.state === 'down');
  return {
    ...(mine > 0 && { '/approvals': { count: mine, hot: true } }),
    ...(running > 0 && { '/runs': { count: running } }),
    ...(tools > 0 && { '/tools': { count: tools } }),
    ...(sources.length > 0 && { '/sources': { count: sources.length, tone: down ? 'fail' : undefined } }),
  };
}
