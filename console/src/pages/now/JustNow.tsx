import { EventLine } from '../../events/EventLine';
import { useRecentEvents } from '../../live/recent';
import { Empty } from '../../ui/States';
import { words } from '../../words';
import { Section } from './Section';

const MOST = 20;
// One line for a call is enough: its end, or that it waits.
const QUIET = new Set(['TOOL_CALL_REQUESTED', 'TOOL_CALL_STARTED', 'SUBAGENT_ACTION', 'SOURCE_LOGGED', 'ARTIFACT_STORED']);

/** The last events in words. */
export function JustNow() {
  const events = useRecentEvents()
    .filter((event) => !QUIET.has(event.type))
    .slice(0, MOST);
  return (
    <Section title={words.now.justNow}>
      {events.length === 0 && <Empty title={words.now.noneHappened} inline />}
      {events.map((event) => (
        <EventLine key={event.id} event={event} />
      ))}
    </Section>
  );
}
