/** The calls of a run as spans, made from its events: what each did when, and what it is inside of. */

import type { Event } from '../../api/types';
import { numberOf, textOf } from '../../live/events';

/** `checks` is before the call runs, `failed` an attempt that failed, `wait` the time before the next, `person` a pause. */
export type SegmentKind = 'checks' | 'run' | 'failed' | 'wait' | 'person';

export interface Segment {
  kind: SegmentKind;
  from: number;
  to: number;
  /** Who answered. */
  by?: string;
  code?: string;
}

export type SpanStatus = 'running' | 'paused' | 'completed' | 'failed';

export interface Span {
  callId: string;
  tool: string;
  status: SpanStatus;
  begin: number;
  /** The present for a span that is open. */
  end: number;
  open: boolean;
  segments: Segment[];
  children: Span[];
  events: Event[];
  errorCode: string | undefined;
  answeredBy: string | undefined;
  pendingId: string | undefined;
  retries: number;
  artifacts: number;
  /** The most children that ran at the same time. */
  parallel: number;
}

const ASKED = new Set(['APPROVAL_REQUESTED', 'CALL_PAUSED']);
const ANSWERED = new Set(['APPROVAL_GRANTED', 'APPROVAL_DENIED', 'CALL_RESUMED', 'QUESTION_EXPIRED']);

/** The outermost calls of a run, each with the calls inside of it, in the order in which they began. */
export function spansOf(events: readonly Event[], now: number): Span[] {
  const spans = new Map<string, SpanBuilder>();
  for (const event of events) {
    if (!event.call_id) continue;
    let builder = spans.get(event.call_id);
    if (!builder) {
      builder = new SpanBuilder(event);
      spans.set(event.call_id, builder);
    }
    builder.add(event);
  }
  return nested([...spans.values()].map((builder) => builder.finish(now)));
}

/** The spans inside of their parents. The ID of a nested call is that of its parent, a dot, and a part of its own. */
function nested(spans: Span[]): Span[] {
  const byId = new Map(spans.map((span) => [span.callId, span]));
  const outermost: Span[] = [];
  for (const span of spans) (parentOf(span, byId)?.children ?? outermost).push(span);
  for (const span of spans) {
    span.children.sort(byBegin);
    span.parallel = mostAtOnce(span.children);
  }
  return outermost.sort(byBegin);
}

const byBegin = (a: Span, b: Span) => a.begin - b.begin;

function parentOf({ callId }: Span, byId: ReadonlyMap<string, Span>): Span | undefined {
  const dot = callId.lastIndexOf('.');
  return dot < 0 ? undefined : byId.get(callId.slice(0, dot));
}

function mostAtOnce(spans: readonly Span[]): number {
  const working = spans.flatMap((span) => span.segments.filter((segment) => segment.kind !== 'person'));
  const edges = working.flatMap(({ from, to }) => [
    [from, 1],
    [to, -1],
  ] as [number, number][]);
  edges.sort(([a, up], [b, down]) => a - b || up - down);
  let [now, most] = [0, 0];
  for (const [, step] of edges) {
    now += step;
    most = Math.max(most, now);
  }
  return Math.min(most, spans.length);
}

/** Follows the events of one call. */
class SpanBuilder {
  private readonly span: Span;
  private kind: SegmentKind = 'checks';
  private since: number;

  constructor(first: Event) {
    this.since = first.at;
    this.span = {
      callId: first.call_id,
      tool: textOf(first, 'tool_name'),
      status: 'running',
      begin: first.at,
      end: first.at,
      open: true,
      segments: [],
      children: [],
      events: [],
      errorCode: undefined,
      answeredBy: undefined,
      pendingId: undefined,
      retries: 0,
      artifacts: 0,
      parallel: 0,
    };
  }

  add(event: Event): void {
    const { span } = this;
    span.events.push(event);
    if (!span.open && event.type === 'TOOL_CALL_REQUESTED') this.again(event);
    else if (event.type === 'TOOL_CALL_STARTED') this.turn('run', event.at);
    else if (event.type === 'CALL_RETRIED') this.retry(event);
    else if (ASKED.has(event.type)) this.pause(event);
    else if (ANSWERED.has(event.type)) this.resume(event);
    else if (event.type === 'TOOL_CALL_COMPLETED') this.end(event, 'completed');
    else if (event.type === 'TOOL_CALL_FAILED') this.fail(event);
    else if (event.type === 'ARTIFACT_STORED') span.artifacts += 1;
  }

  finish(now: number): Span {
    if (this.span.open) {
      this.turn(this.kind, Math.max(now, this.since));
      this.span.end = Math.max(now, this.span.begin);
    }
    return this.span;
  }

  /** A call that had ended is made again, because the call around it runs again from its start. */
  private again(event: Event): void {
    this.kind = 'checks';
    this.since = event.at;
    this.span.status = 'running';
    this.span.open = true;
  }

  private turn(kind: SegmentKind, at: number, more: Partial<Segment> = {}): void {
    if (at > this.since) this.span.segments.push({ kind: this.kind, from: this.since, to: at, ...more });
    this.kind = kind;
    this.since = Math.max(at, this.since);
  }

  private retry(event: Event): void {
    this.kind = 'failed';
    this.turn('wait', event.at, { code: textOf(event, 'error_code') });
    this.turn('run', event.at + (numberOf(event, 'wait_s') ?? 0));
    this.span.retries += 1;
  }

  private pause(event: Event): void {
    this.turn('person', event.at);
    this.span.status = 'paused';
    this.span.pendingId = textOf(event, 'pending_id') || undefined;
  }

  private resume(event: Event): void {
    const by = textOf(event, 'by') || undefined;
    this.turn('checks', event.at, { by });
    this.span.status = 'running';
    this.span.answeredBy = by;
  }

  private fail(event: Event): void {
    const code = textOf(event, 'error_code') || undefined;
    if (this.kind === 'run') this.kind = 'failed';
    // The process ended while the next attempt was waited for.
    this.since = Math.min(this.since, event.at);
    this.span.errorCode = code;
    this.end(event, 'failed', { code });
  }

  private end(event: Event, status: SpanStatus, more: Partial<Segment> = {}): void {
    this.turn('checks', event.at, more);
    this.span.status = status;
    this.span.end = Math.max(event.at, this.span.begin);
    this.span.open = false;
    if (textOf(event, 'output_artifact_id')) this.span.artifacts += 1;
  }
}

// ---------------------------------------------------------------- rows

export interface SpanRow {
  span: Span;
  depth: number;
  /** How many calls this row stands for, where it stands for more than one. */
  collapsed: number;
}

const MOST_SIBLINGS = 20;

/** The visible rows. Parallel calls of one tool beyond twenty are one row, until it is opened. */
export function rowsOf(spans: readonly Span[], closed: ReadonlySet<string>, opened: ReadonlySet<string>, depth = 0): SpanRow[] {
  const byTool = new Map<string, Span[]>();
  for (const span of spans) byTool.set(span.tool, [...(byTool.get(span.tool) ?? []), span]);
  return spans.flatMap((span): SpanRow[] => {
    const siblings = byTool.get(span.tool) ?? [];
    const group = siblings[0]?.callId ?? '';
    if (siblings.length > MOST_SIBLINGS && !opened.has(group)) {
      return span.callId === group ? [{ span: merged(siblings), depth, collapsed: siblings.length }] : [];
    }
    const inner = closed.has(span.callId) ? [] : rowsOf(span.children, closed, opened, depth + 1);
    return [{ span, depth, collapsed: 0 }, ...inner];
  });
}

/** Many calls as one span, from the first begin to the last end. */
function merged(spans: readonly Span[]): Span {
  const [first] = spans;
  if (!first) throw new Error('no spans');
  const [begin, end] = [Math.min(...spans.map((span) => span.begin)), Math.max(...spans.map((span) => span.end))];
  const failed = spans.find((span) => span.status === 'failed');
  const open = spans.some((span) => span.open);
  return {
    ...first,
    begin,
    end,
    open,
    status: failed ? 'failed' : open ? 'running' : 'completed',
    errorCode: failed?.errorCode,
    segments: [{ kind: 'run', from: begin, to: end }],
    children: [],
  };
}

export function allSpans(spans: readonly Span[]): Span[] {
  return spans.flatMap((span) => [span, ...allSpans(span.children)]);
}

// ---------------------------------------------------------------- work and waits

export interface Stretch {
  from: number;
  to: number;
}

/** The times in which a call did something, and was not only waiting for a person. */
export function workOf(spans: readonly Span[]): Stretch[] {
  const working = allSpans(spans).flatMap((span) => {
    const own = span.segments.filter((segment) => segment.kind !== 'person');
    // A call that waits for a call inside of it, which waits for a person, waits for that person.
    const inside = span.children.flatMap((child) => child.segments.filter((segment) => segment.kind === 'person'));
    return without(own, inside);
  });
  return union(working);
}

/** The times in which at least one call waited for a person, and no call did anything. */
export function pausesOf(spans: readonly Span[]): Stretch[] {
  const waiting = allSpans(spans).flatMap((span) => span.segments.filter((segment) => segment.kind === 'person'));
  return without(union(waiting), workOf(spans));
}

export const lengthOf = (stretches: readonly Stretch[]) => stretches.reduce((sum, { from, to }) => sum + to - from, 0);

function union(stretches: readonly Stretch[]): Stretch[] {
  const joined: Stretch[] = [];
  for (const { from, to } of [...stretches].sort((a, b) => a.from - b.from)) {
    const last = joined.at(-1);
    if (last && from <= last.to) last.to = Math.max(last.to, to);
    else joined.push({ from, to });
  }
  return joined;
}

function without(stretches: readonly Stretch[], removed: readonly Stretch[]): Stretch[] {
  const holes = union(removed);
  return stretches.flatMap(({ from, to }) => {
    const left: Stretch[] = [];
    let at = from;
    for (const hole of holes) {
      if (hole.to <= at || hole.from >= to) continue;
      if (hole.from > at) left.push({ from: at, to: hole.from });
      at = Math.max(at, hole.to);
    }
    if (at < to) left.push({ from: at, to });
    return left;
  });
}
