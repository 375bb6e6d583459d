import { useQuery } from '@tanstack/react-query';

import { latestEventsQuery } from '../../api/audit';
import type { Event } from '../../api/types';
import { EventLine } from '../../events/EventLine';
import { useRecentEvents } from '../../live/recent';
import { Empty, Failure, Skeleton } from '../../ui/States';
import { words } from '../../words';
import { Section } from './Section';

const MOST = 20;
// One line for a call is enough: its end, or that it waits.
const QUIET = new Set(['TOOL_CALL_REQUESTED', 'TOOL_CALL_STARTED', 'SUBAGENT_ACTION', 'SOURCE_LOGGED', 'ARTIFACT_STORED']);

/** The last events in words: those of the log, and above them those that arrived since. */
export function JustNow() {
  const logged = useQuery(latestEventsQuery);
  const events = newestFirst([...useRecentEvents(), ...(logged.data ?? [])]);
  return (
    <Section title={words.now.justNow}>
      {logged.isPending && events.length === 0 && <Skeleton rows={5} height={26} />}
      {logged.error && <Failure error={logged.error} onRetry={() => void logged.refetch()} inline />}
      {logged.data && events.length === 0 && <Empty title={words.now.noneHappened} inline />}
      {events.map((event) => (
        <EventLine key={event.id} event={event} />
      ))}
    </Section>
  );
}

function newestFirst(events: readonly Event[]): Event[] {
  const byId = new Map(events.filter((event) => !QUIET.has(event.type)).map((event) => [event.id, event]));
  return [...byId.values()].sort((a, b) => b.id - a.id).slice(0, MOST);
}
