import { formatClockSeconds, formatDuration, formatExact, isoTime } from '../format/time';
import { numberOf, textOf, type Event } from '../live/events';
import { Foreign } from '../ui/Foreign';
import { Glyph } from '../ui/Glyph';
import { ToolName } from '../ui/ToolName';
import { shortUser } from '../cards/kinds';
import styles from './EventLine.module.css';
import { lookOfEvent } from './look';

/** An event in one line: when, about what, and what happened. */
export function EventLine({ event }: { event: Event }) {
  const { icon, tone, says } = lookOfEvent(event.type);
  return (
    <div className={styles.line}>
      <time className="faint num t12" dateTime={isoTime(event.at)} title={formatExact(event.at)}>
        {formatClockSeconds(event.at)}
      </time>
      <span className={`${tone}-ink`}>
        <Glyph icon={icon} size={14} />
      </span>
      <span className="cut">
        <Subject event={event} /> <span className="soft">{says}</span> <Detail event={event} />
      </span>
    </div>
  );
}

function Subject({ event }: { event: Event }) {
  const tool = textOf(event, 'tool_name') || textOf(event, 'tool');
  const source = textOf(event, 'source');
  const by = textOf(event, 'by');
  if (by && tool) {
    return (
      <>
        <ToolName name={tool} /> <Foreign text={shortUser(by)} cutOnly className="medium" />
      </>
    );
  }
  if (tool) return <ToolName name={tool} />;
  const person = event.type.startsWith('SESSION_') ? textOf(event, 'user') : '';
  return <Foreign text={source || textOf(event, 'name') || shortUser(person || event.user)} cutOnly className="medium" />;
}

function Detail({ event }: { event: Event }) {
  const took = numberOf(event, 'duration_ms');
  if (event.type === 'TOOL_CALL_COMPLETED' && took !== undefined) return <span className="soft">{formatDuration(took)}</span>;
  const text = textOf(event, 'error_code') || (event.type === 'SUBAGENT_ACTION' ? textOf(event, 'text') : '');
  return text ? <Foreign text={text} cutOnly className="soft" /> : null;
}
