import { Link } from '@tanstack/react-router';

import type { Event } from '../../api/types';
import { useNow } from '../../format/clock';
import { formatClockSeconds, formatExact, formatMoment, isoTime } from '../../format/time';
import { lookOfEvent } from '../../events/look';
import { detailOf } from '../../live/summary';
import { textOf } from '../../live/events';
import { Button, buttonClasses } from '../../ui/Button';
import { classes } from '../../ui/classes';
import { CopyId } from '../../ui/Copy';
import { Facts } from '../../ui/Facts';
import { Foreign } from '../../ui/Foreign';
import { Glyph } from '../../ui/Glyph';
import { ToolName } from '../../ui/ToolName';
import { auditWords } from '../../words';
import { EventDetails } from '../runs/EventTable';
import styles from './audit.module.css';

interface AuditRowProps {
  event: Event;
  isOpen: boolean;
  onToggle: () => void;
  onFilter: (only: { run?: string; user?: string }) => void;
}

/** An event in one line; open, with its payload, its hash and its run. */
export function AuditRow({ event, isOpen, onToggle, onFilter }: AuditRowProps) {
  const { icon, tone } = lookOfEvent(event.type);
  const tool = textOf(event, 'tool_name');
  return (
    <div className={classes(styles.item, isOpen && styles.on)}>
      <button type="button" className={styles.row} aria-expanded={isOpen} onClick={onToggle}>
        <EventTime at={event.at} />
        <span className={classes(styles.type, tone === 'idle' ? 'soft' : `${tone}-ink`)}>
          <Glyph icon={icon} size={14} />
          {event.type}
        </span>
        <span className={classes('cut', styles.what)}>
          {tool ? <ToolName name={tool} /> : <Foreign text={textOf(event, 'source')} cutOnly className="medium" />}{' '}
          <Foreign text={detailOf(event)} cutOnly className="soft" />
        </span>
        <span className={classes('cut soft', styles.user)}>
          <Foreign text={event.user} limit={60} cutOnly />
        </span>
      </button>
      {isOpen && <OpenEvent event={event} onFilter={onFilter} />}
    </div>
  );
}

const DAY_S = 86_400;

/** The clock time, with the date for what was more than a day ago. */
function EventTime({ at }: { at: number }) {
  const now = useNow(60);
  const time = formatClockSeconds(at);
  return (
    <time className={styles.time} dateTime={isoTime(at)} title={formatExact(at)}>
      {now - at < DAY_S ? time : `${formatMoment(at, now)}, ${time}`}
    </time>
  );
}

function OpenEvent({ event, onFilter }: { event: Event; onFilter: AuditRowProps['onFilter'] }) {
  return (
    <div className={styles.open}>
      <Facts
        facts={[
          [auditWords.exactTime, formatExact(event.at)],
          [auditWords.columns.user, <Foreign text={event.user} />],
          ...(event.run_id ? [[auditWords.run, <CopyId id={event.run_id} />] as const] : []),
          ...(event.call_id ? [[auditWords.call, <CopyId id={event.call_id} />] as const] : []),
        ]}
      />
      <EventDetails event={event} />
      <div className="row wrap">
        {event.run_id && (
          <>
            <Link to="/runs/$id" params={{ id: event.run_id }} className={buttonClasses()}>
              {auditWords.openRun}
            </Link>
            <Button onClick={() => onFilter({ run: event.run_id })}>{auditWords.onlyRun}</Button>
          </>
        )}
        <Button onClick={() => onFilter({ user: event.user })}>{auditWords.onlyUser}</Button>
      </div>
    </div>
  );
}
