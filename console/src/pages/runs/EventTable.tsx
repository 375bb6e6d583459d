import { useMemo, useState } from 'react';

import type { Event } from '../../api/types';
import { lookOfEvent } from '../../events/look';
import { summaryOf } from '../../live/summary';
import { fromPlain } from '../../schema/json';
import { Chip, FilterChip } from '../../ui/Chip';
import { classes } from '../../ui/classes';
import { CopyId } from '../../ui/Copy';
import { Foreign } from '../../ui/Foreign';
import { List } from '../../ui/List';
import { Select } from '../../ui/Select';
import { Empty } from '../../ui/States';
import { JsonTree } from '../../views/JsonTree';
import { runWords } from '../../words';
import styles from './EventTable.module.css';
import { tickLabel } from './scale';

const ROW_HEIGHT = 29;

interface EventTableProps {
  events: readonly Event[];
  /** The call that is selected, to show its events alone. */
  call: { id: string; tool: string } | undefined;
}

/** The events of a run in their order. A row opens its payload. */
export function EventTable({ events, call }: EventTableProps) {
  const [type, setType] = useState('');
  const [onlyCall, setOnlyCall] = useState(false);
  const [open, setOpen] = useState<ReadonlySet<number>>(new Set());
  const types = useMemo(() => [...new Set(events.map((event) => event.type))].sort(), [events]);
  const shown = events.filter((event) => (type === '' || event.type === type) && (!onlyCall || !call || event.call_id === call.id));
  const begin = events[0]?.at ?? 0;
  const toggle = (event: Event) => {
    const next = new Set(open);
    if (!next.delete(event.id)) next.add(event.id);
    setOpen(next);
  };
  return (
    <section className={styles.events} aria-label={runWords.events}>
      <header className={styles.top}>
        <h2>{runWords.events}</h2>
        <span className="faint num">{shown.length.toLocaleString()}</span>
        <Select
          look="chip"
          label={runWords.allTypes}
          value={type}
          onChange={setType}
          options={[{ value: '', label: runWords.allTypes }, ...types.map((one) => ({ value: one, label: one }))]}
        />
        {call && (
          <FilterChip on={onlyCall} onClick={() => setOnlyCall(!onlyCall)}>
            <Foreign text={runWords.onlyCall(call.tool)} limit={60} />
          </FilterChip>
        )}
        <span className="end faint t12">{runWords.hashed}</span>
      </header>
      {shown.length === 0 ? (
        <Empty inline title={runWords.noEvents} />
      ) : (
        <List
          items={shown}
          label={runWords.events}
          keyOf={(event) => String(event.id)}
          rowHeight={ROW_HEIGHT}
          render={(event) => <EventRow event={event} begin={begin} on={event.call_id === call?.id} open={open.has(event.id)} onToggle={() => toggle(event)} />}
        />
      )}
    </section>
  );
}

interface EventRowProps {
  event: Event;
  begin: number;
  on: boolean;
  open: boolean;
  onToggle: () => void;
}

function EventRow({ event, begin, on, open, onToggle }: EventRowProps) {
  const { tone } = lookOfEvent(event.type);
  return (
    <div className={classes(styles.item, on && styles.on)}>
      <button type="button" className={styles.row} aria-expanded={open} onClick={onToggle}>
        <span className={styles.seq}>{event.seq}</span>
        <span className={styles.time}>+{offset(event.at - begin)}</span>
        <span className={classes(styles.type, `${tone}-ink`)}>{event.type}</span>
        <span className={classes('cut', styles.summary)}>
          <Foreign text={summaryOf(event)} cutOnly />
        </span>
        <span className={styles.hash}>{event.hash.slice(0, 6)}</span>
      </button>
      {open && <EventDetails event={event} />}
    </div>
  );
}

/** The payload and the hash of an event. */
export function EventDetails({ event }: { event: Event }) {
  const forgotten = event.payload.forgotten === true;
  return (
    <div className={styles.details}>
      {forgotten && <Chip tone="idle">{runWords.forgotten}</Chip>}
      <JsonTree value={fromPlain(event.payload)} label={runWords.payload} height={320} />
      <div className="row wrap t12 faint">
        {runWords.hash} <CopyId id={event.hash} />
      </div>
    </div>
  );
}

function offset(seconds: number): string {
  return seconds < 60 ? `${seconds.toFixed(3)} s` : tickLabel(seconds);
}
