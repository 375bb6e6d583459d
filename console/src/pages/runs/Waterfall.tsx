import { useVirtualizer } from '@tanstack/react-virtual';
import { useMemo, useRef, useState, type KeyboardEvent, type PointerEvent, type RefObject } from 'react';

import { formatDuration } from '../../format/time';
import { IconButton } from '../../ui/Button';
import { Chip, FilterChip } from '../../ui/Chip';
import { classes } from '../../ui/classes';
import { Dot } from '../../ui/Dot';
import { Foreign } from '../../ui/Foreign';
import { Glyph } from '../../ui/Glyph';
import { ApprovedIcon, AskIcon, AttachmentIcon, NextIcon, ZoomInIcon, ZoomOutIcon } from '../../ui/icons';
import { Segmented } from '../../ui/Tabs';
import { ToolName } from '../../ui/ToolName';
import { runWords } from '../../words';
import { orderScale, tickLabel, timeScale, type Scale } from './scale';
import { allSpans, pausesOf, rowsOf, type Segment, type Span, type SpanRow } from './spans';
import { statusTone } from './status';
import styles from './Waterfall.module.css';

const ROW_HEIGHT = 34;
const ZOOM = 1.6;
const SHORTEST_DRAG = 0.01;

interface WaterfallProps {
  spans: readonly Span[];
  selected: string | undefined;
  onSelect: (callId: string | undefined) => void;
}

/** The part of the axis that is shown, from 0 to 1. */
interface View {
  from: number;
  to: number;
}

const ALL: View = { from: 0, to: 1 };

/** The calls of a run over time, as a tree. Pauses are folded, dragging zooms, and only visible rows exist. */
export function Waterfall({ spans, selected, onSelect }: WaterfallProps) {
  const [mode, setMode] = useState<'time' | 'order'>('time');
  const [folded, setFolded] = useState(true);
  const [view, setView] = useState(ALL);
  const [closed, setClosed] = useState<ReadonlySet<string>>(new Set());
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set());
  const rows = useMemo(() => rowsOf(spans, closed, opened), [spans, closed, opened]);
  const scale = useMemo(() => scaleOf(spans, mode, folded), [spans, mode, folded]);

  function toggle(row: SpanRow, open: boolean) {
    if (row.collapsed > 0) setOpened((known) => new Set([...known, row.span.callId]));
    else if (row.span.children.length > 0) setClosed((known) => changed(known, row.span.callId, !open));
  }
  function onKeyDown(event: KeyboardEvent) {
    const at = rows.findIndex((row) => row.span.callId === selected);
    const row = rows[at];
    const zoom = event.metaKey || event.ctrlKey ? { '+': 1 / ZOOM, '=': 1 / ZOOM, '-': ZOOM }[event.key] : undefined;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (zoom !== undefined) setView((now) => zoomed(now, zoom));
    else if (step !== undefined) onSelect(rows[Math.min(Math.max(at + step, 0), rows.length - 1)]?.span.callId);
    else if (row && event.key === 'ArrowRight') toggle(row, true);
    else if (row && event.key === 'ArrowLeft') toggle(row, false);
    else return;
    event.preventDefault();
  }
  return (
    <section className={styles.waterfall} aria-label={runWords.rowsLabel}>
      <div className={styles.tools}>
        <Legend />
        <span className={styles.buttons}>
          {view !== ALL && <FilterChip onClick={() => setView(ALL)}>{runWords.zoomReset}</FilterChip>}
          <IconButton icon={ZoomOutIcon} label={runWords.zoomOut} disabled={view === ALL} onClick={() => setView((now) => zoomed(now, ZOOM))} />
          <IconButton icon={ZoomInIcon} label={runWords.zoomIn} onClick={() => setView((now) => zoomed(now, 1 / ZOOM))} />
          <Segmented
            label={runWords.time}
            items={[
              { value: 'time', label: runWords.time },
              { value: 'order', label: runWords.order },
            ]}
            value={mode}
            onChange={setMode}
          />
          <FilterChip on={folded && mode === 'time'} disabled={mode === 'order'} onClick={() => setFolded(!folded)}>
            {runWords.fold}
          </FilterChip>
        </span>
      </div>
      <Axis scale={scale} view={view} />
      <Rows rows={rows} scale={scale} view={view} selected={selected} onSelect={onSelect} onToggle={toggle} onZoom={setView} closed={closed} onKeyDown={onKeyDown} />
    </section>
  );
}

function Legend() {
  const entries = [
    ['checks', runWords.checks],
    ['run', runWords.running],
    ['failed', runWords.failedTry],
    ['wait', runWords.waitRetry],
    ['person', runWords.waitPerson],
  ] as const;
  return (
    <ul className={styles.legend}>
      {entries.map(([kind, word]) => (
        <li key={kind}>
          <i aria-hidden className={classes(styles.swatch, styles[kind])} />
          {word}
        </li>
      ))}
    </ul>
  );
}

function Axis({ scale, view }: { scale: Scale; view: View }) {
  return (
    <div className={styles.axis}>
      <span className={styles.nameColumn}>{runWords.call}</span>
      <div className={styles.chart}>
        {scale.ticks.map((tick) => {
          const x = within(tick.x, view);
          return x < 0 || x > 0.97 ? null : (
            <span key={tick.at} className={styles.tick} style={{ left: percent(x) }}>
              {tickLabel(tick.at)}
            </span>
          );
        })}
      </div>
      <span className={styles.tookColumn}>{runWords.took}</span>
    </div>
  );
}

interface RowsProps {
  rows: readonly SpanRow[];
  scale: Scale;
  view: View;
  selected: string | undefined;
  closed: ReadonlySet<string>;
  onSelect: (callId: string | undefined) => void;
  onToggle: (row: SpanRow, open: boolean) => void;
  onZoom: (view: View) => void;
  onKeyDown: (event: KeyboardEvent) => void;
}

function Rows({ rows, scale, view, selected, closed, onSelect, onToggle, onZoom, onKeyDown }: RowsProps) {
  const place = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({ count: rows.length, getScrollElement: () => place.current, estimateSize: () => ROW_HEIGHT, overscan: 10 });
  const grid = useRef<HTMLDivElement>(null);
  const { drag, handlers } = useDragZoom(grid, view, onZoom);
  return (
    <div ref={place} className={styles.view} role="treegrid" aria-label={runWords.rowsLabel} aria-rowcount={rows.length} tabIndex={0} onKeyDown={onKeyDown}>
      <div className={styles.sizer} style={{ height: virtual.getTotalSize() }} onDoubleClick={() => onZoom(ALL)} {...handlers}>
        <div ref={grid} className={styles.grid}>
          {scale.ticks.map((tick) => (
            <i key={tick.at} className={styles.gridLine} style={{ left: percent(within(tick.x, view)) }} />
          ))}
          {scale.folds.map((fold) => (
            <div key={fold.from} className={styles.fold} style={placed(fold.x, fold.x + fold.width, view)}>
              <span>{formatDuration((fold.to - fold.from) * 1000)}</span>
            </div>
          ))}
          {drag && <div className={styles.drag} style={{ left: percent(drag.from), width: percent(drag.to - drag.from) }} />}
        </div>
        {virtual.getVirtualItems().map((item) => {
          const row = rows[item.index];
          return (
            row && (
              <Row
                key={row.span.callId}
                row={row}
                index={item.index}
                scale={scale}
                view={view}
                top={item.start}
                on={row.span.callId === selected}
                open={!closed.has(row.span.callId)}
                onSelect={() => onSelect(row.span.callId)}
                onToggle={(open) => onToggle(row, open)}
              />
            )
          );
        })}
      </div>
    </div>
  );
}

interface RowProps {
  row: SpanRow;
  index: number;
  scale: Scale;
  view: View;
  top: number;
  on: boolean;
  open: boolean;
  onSelect: () => void;
  onToggle: (open: boolean) => void;
}

function Row({ row, index, scale, view, top, on, open, onSelect, onToggle }: RowProps) {
  const { span, depth, collapsed } = row;
  const openable = span.children.length > 0 || collapsed > 0;
  const shownOpen = open && collapsed === 0;
  return (
    <div
      role="row"
      aria-level={depth + 1}
      aria-rowindex={index + 1}
      aria-selected={on}
      aria-expanded={openable ? shownOpen : undefined}
      className={classes(styles.row, on && styles.on)}
      style={{ transform: `translateY(${top}px)` }}
      onClick={onSelect}
    >
      <div role="gridcell" className={styles.nameColumn} style={{ paddingLeft: 16 + depth * 17 }}>
        {openable ? (
          <button
            type="button"
            className={styles.toggle}
            aria-label={span.tool}
            aria-expanded={shownOpen}
            onClick={(event) => {
              event.stopPropagation();
              onToggle(!shownOpen);
            }}
          >
            <Glyph icon={NextIcon} size={14} className={classes(shownOpen && styles.turned)} />
          </button>
        ) : (
          <span className={styles.toggle} />
        )}
        <Dot tone={statusTone(span.status)} />
        <button type="button" className={styles.name} onClick={onSelect}>
          <ToolName name={span.tool} />
        </button>
        <Marks row={row} />
      </div>
      <div role="gridcell" className={styles.chart}>
        <span className="visually-hidden">{describe(span)}</span>
        {span.children.length > 0 ? <Thin span={span} scale={scale} view={view} /> : span.segments.map((segment, at) => <Bar key={at} segment={segment} scale={scale} view={view} open={span.open} />)}
      </div>
      <div role="gridcell" className={styles.tookColumn}>
        {formatDuration(workMs(span))}
      </div>
    </div>
  );
}

/** What is worth knowing of a call at a glance, beside its name. */
function Marks({ row: { span, collapsed } }: { row: SpanRow }) {
  return (
    <span className={styles.marks}>
      {collapsed > 0 && <Chip tone="line">{runWords.nested(collapsed)}</Chip>}
      {span.parallel > 1 && <Chip tone="line">{runWords.parallel(span.parallel)}</Chip>}
      {span.errorCode !== undefined && (
        <Chip tone="fail">
          <Foreign text={span.errorCode} limit={40} />
        </Chip>
      )}
      {span.answeredBy !== undefined && (
        <span className={styles.answered} title={runWords.approvedBy(span.answeredBy)}>
          <Glyph icon={ApprovedIcon} size={12} />
          <Foreign text={shortName(span.answeredBy)} limit={30} />
        </span>
      )}
      {span.artifacts > 0 && <Glyph icon={AttachmentIcon} size={12} />}
    </span>
  );
}

function Bar({ segment, scale, view, open }: { segment: Segment; scale: Scale; view: View; open: boolean }) {
  const { kind, from, to, by } = segment;
  const title = `${titleOf(segment)}, ${formatDuration((to - from) * 1000)}`;
  return (
    <div className={classes(styles.bar, styles[kind], open && kind === 'run' && styles.live)} style={placed(scale.x(from), scale.x(to), view)} title={title}>
      {kind === 'person' && (
        <span className={styles.barText}>
          <Glyph icon={AskIcon} size={12} />
          <Foreign text={by === undefined ? runWords.waitsFor : runWords.pausedFor(shortName(by))} limit={40} />
        </span>
      )}
    </div>
  );
}

/** A call with calls inside of it: a thin line from begin to end. */
function Thin({ span, scale, view }: { span: Span; scale: Scale; view: View }) {
  const waits = span.segments.filter((segment) => segment.kind === 'person');
  return (
    <>
      <div className={classes(styles.thin, span.status === 'failed' && styles.thinFailed)} style={placed(scale.x(span.begin), scale.x(span.end), view)} />
      {waits.map((segment) => (
        <Bar key={segment.from} segment={segment} scale={scale} view={view} open={span.open} />
      ))}
    </>
  );
}

/** Zooms to what was dragged over on the chart; a short drag is a press of the row. */
function useDragZoom(grid: RefObject<HTMLDivElement | null>, view: View, onZoom: (view: View) => void) {
  const [drag, setDrag] = useState<View>();
  const start = useRef<number>(undefined);
  const at = (event: PointerEvent) => {
    const box = grid.current?.getBoundingClientRect();
    return box ? (event.clientX - box.left) / box.width : 0;
  };
  const handlers = {
    onPointerDown: (event: PointerEvent) => {
      const place = at(event);
      start.current = event.pointerType === 'mouse' && place >= 0 && place <= 1 ? place : undefined;
    },
    onPointerMove: (event: PointerEvent) => {
      if (start.current === undefined) return;
      const now = Math.min(1, Math.max(0, at(event)));
      if (Math.abs(now - start.current) < SHORTEST_DRAG) return;
      event.currentTarget.setPointerCapture(event.pointerId);
      setDrag({ from: Math.min(start.current, now), to: Math.max(start.current, now) });
    },
    onPointerUp: () => {
      start.current = undefined;
      setDrag(undefined);
      if (!drag) return;
      const width = view.to - view.from;
      onZoom({ from: view.from + drag.from * width, to: view.from + drag.to * width });
    },
  };
  return { drag, handlers };
}

function scaleOf(spans: readonly Span[], mode: 'time' | 'order', folded: boolean): Scale {
  const all = allSpans(spans);
  if (mode === 'order') return orderScale(all.flatMap((span) => [span.begin, span.end, ...span.segments.flatMap(({ from, to }) => [from, to])]));
  const begin = Math.min(...all.map((span) => span.begin));
  const end = Math.max(...all.map((span) => span.end));
  return timeScale(begin, end, folded ? pausesOf(spans) : []);
}

/** What a call did itself; for an outer call all of its time. */
function workMs(span: Span): number {
  if (span.children.length > 0) return (span.end - span.begin) * 1000;
  const worked = span.segments.filter((segment) => segment.kind !== 'person');
  return worked.reduce((sum, { from, to }) => sum + to - from, 0) * 1000;
}

function titleOf({ kind, by, code }: Segment): string {
  switch (kind) {
    case 'checks':
      return runWords.checks;
    case 'run':
      return runWords.running;
    case 'failed':
      return code ? `${runWords.failedTry}: ${code}` : runWords.failedTry;
    case 'wait':
      return runWords.waitRetry;
    case 'person':
      return by === undefined ? runWords.waitPerson : runWords.pausedFor(by);
  }
}

function describe(span: Span): string {
  return span.segments.map((segment) => `${titleOf(segment)} ${formatDuration((segment.to - segment.from) * 1000)}`).join(', ');
}

/** Without the tenant. */
function shortName(user: string): string {
  return user.slice(user.indexOf(':') + 1);
}

function changed(set: ReadonlySet<string>, value: string, add: boolean): ReadonlySet<string> {
  const next = new Set(set);
  if (add) next.add(value);
  else next.delete(value);
  return next;
}

function zoomed({ from, to }: View, factor: number): View {
  const middle = (from + to) / 2;
  const half = ((to - from) / 2) * factor;
  const next = { from: Math.max(0, middle - half), to: Math.min(1, middle + half) };
  return next.to - next.from >= 1 ? ALL : next;
}

const within = (x: number, { from, to }: View) => (x - from) / (to - from);
const percent = (part: number) => `${(part * 100).toFixed(3)}%`;

function placed(from: number, to: number, view: View) {
  const [left, right] = [Math.max(-0.01, within(from, view)), Math.min(1.01, within(to, view))];
  return { left: percent(left), width: percent(Math.max(0, right - left)), display: right < left ? 'none' : undefined };
}
