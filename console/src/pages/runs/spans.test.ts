import { describe, expect, it } from 'vitest';

import type { Event, Run } from '../../api/types';
import recorded from './recorded-run.json?raw';
import { orderScale, tickLabel, timeScale } from './scale';
import { allSpans, lengthOf, pausesOf, rowsOf, spansOf, workOf, type Span } from './spans';

const run = JSON.parse(recorded) as Run;
const NOW = 2_000_000_000;
const spans = spansOf(run.log ?? [], NOW);
const [root] = spans;
const named = (tool: string) => allSpans(spans).filter((span) => span.tool === tool);
const kinds = (span: Span | undefined) => span?.segments.map((segment) => segment.kind);

let seq = 0;
function event(type: string, at: number, callId = 'call_1', payload: Record<string, unknown> = {}): Event {
  seq += 1;
  return { id: seq, run_id: 'run_1', seq, code: 0, type, at, call_id: callId, tenant: 'acme', user: 'ann', payload: { tool_name: 'x', ...payload }, hash: '' };
}

describe('a recorded run with nested, parallel, retried and paused calls', () => {
  it('has its nested calls inside of the outermost one', () => {
    expect(spans).toHaveLength(1);
    expect(root?.children.map((span) => span.tool)).toEqual([
      'shop.get_contact', 'shop.flaky', 'shop.refund', 'shop.send_mail', 'shop.send_mail', 'shop.send_mail',
    ]);
  });

  it('shows each failed attempt and the wait after it', () => {
    const [flaky] = named('shop.flaky');
    expect(kinds(flaky)).toEqual(['checks', 'failed', 'wait', 'failed', 'wait', 'run']);
    expect(flaky?.retries).toBe(2);
    expect(flaky?.segments[1]?.code).toBe('connection_failed');
  });

  it('shows the wait for a person, and who answered', () => {
    const [refund] = named('shop.refund');
    expect(kinds(refund)).toEqual(['checks', 'person', 'checks', 'run']);
    expect(refund?.answeredBy).toBe('local:root');
    expect(refund?.segments[1]?.by).toBe('local:root');
  });

  it('marks a failed call with its code', () => {
    const failed = named('shop.send_mail').find((span) => span.status === 'failed');
    expect(failed?.errorCode).toBe('tool_raised');
    expect(kinds(failed)?.at(-1)).toBe('failed');
  });

  it('counts calls that ran at the same time', () => {
    expect(root?.parallel).toBe(3);
  });

  it('knows how long it worked, and how long it only waited for a person', () => {
    expect(lengthOf(workOf(spans))).toBeCloseTo(1.03, 1);
    expect(lengthOf(pausesOf(spans))).toBeCloseTo(12, 0);
  });

  it('folds the pause to 13 % of the width', () => {
    const begin = root?.begin ?? 0;
    const scale = timeScale(begin, begin + 13.04, pausesOf(spans));
    expect(scale.folds).toHaveLength(1);
    expect(scale.folds[0]?.width).toBe(0.13);
    expect(scale.x(begin)).toBe(0);
    expect(scale.x(begin + 13.04)).toBe(1);
    expect(scale.x(begin + 0.8)).toBeGreaterThan(0.6);
  });
});

describe('a span', () => {
  it('is open until its call ends, and grows with the time', () => {
    const [span] = spansOf([event('TOOL_CALL_REQUESTED', 10), event('TOOL_CALL_STARTED', 11)], 15);
    expect(span).toMatchObject({ open: true, end: 15, status: 'running' });
    expect(span?.segments).toEqual([
      { kind: 'checks', from: 10, to: 11 },
      { kind: 'run', from: 11, to: 15 },
    ]);
  });

  it('waits for a person until the present', () => {
    const [span] = spansOf([event('TOOL_CALL_REQUESTED', 10), event('APPROVAL_REQUESTED', 10, 'call_1', { pending_id: 'ask_1' })], 100);
    expect(span).toMatchObject({ status: 'paused', pendingId: 'ask_1' });
    expect(span?.segments).toEqual([{ kind: 'person', from: 10, to: 100 }]);
  });

  it('that is made again after a pause of the call around it did nothing in between', () => {
    const [span] = spansOf(
      [
        event('TOOL_CALL_REQUESTED', 0),
        event('TOOL_CALL_STARTED', 0),
        event('TOOL_CALL_COMPLETED', 1),
        event('TOOL_CALL_REQUESTED', 300),
        event('TOOL_CALL_STARTED', 300),
        event('TOOL_CALL_COMPLETED', 302),
      ],
      NOW,
    );
    expect(span).toMatchObject({ begin: 0, end: 302, open: false, status: 'completed' });
    expect(span?.segments).toEqual([
      { kind: 'run', from: 0, to: 1 },
      { kind: 'run', from: 300, to: 302 },
    ]);
  });

  it('of a denied call ends without having run', () => {
    const [span] = spansOf(
      [
        event('TOOL_CALL_REQUESTED', 0),
        event('APPROVAL_REQUESTED', 0),
        event('APPROVAL_DENIED', 9, 'call_1', { by: 'acme:eva' }),
        event('TOOL_CALL_FAILED', 9, 'call_1', { error_code: 'approval_denied' }),
      ],
      NOW,
    );
    expect(kinds(span)).toEqual(['person']);
    expect(span).toMatchObject({ status: 'failed', errorCode: 'approval_denied', open: false });
  });

  it('pauses twice, by a question of the tool after the approval', () => {
    const [span] = spansOf(
      [
        event('TOOL_CALL_REQUESTED', 0),
        event('APPROVAL_REQUESTED', 0),
        event('APPROVAL_GRANTED', 2),
        event('TOOL_CALL_STARTED', 2),
        event('CALL_PAUSED', 3),
        event('CALL_RESUMED', 8),
        event('TOOL_CALL_STARTED', 8),
        event('TOOL_CALL_COMPLETED', 9),
      ],
      NOW,
    );
    expect(kinds(span)).toEqual(['person', 'run', 'person', 'run']);
  });

  it('survives an end during the wait for the next attempt, and events without a begin', () => {
    const [span] = spansOf([event('TOOL_CALL_STARTED', 0), event('CALL_RETRIED', 1, 'call_1', { wait_s: 60 }), event('TOOL_CALL_FAILED', 3)], NOW);
    expect(span?.segments.every(({ from, to }) => to >= from)).toBe(true);
    expect(span?.end).toBe(3);
    expect(spansOf([event('SUBAGENT_ACTION', 1), event('SOURCE_UP', 1, '')], NOW)).toHaveLength(1);
  });

  it('whose parent is not in the log is outermost', () => {
    expect(spansOf([event('TOOL_CALL_REQUESTED', 0, 'call_9.abc')], 1).map((span) => span.callId)).toEqual(['call_9.abc']);
  });
});

describe('rows', () => {
  const many = spansOf(
    [event('TOOL_CALL_REQUESTED', 0), ...Array.from({ length: 30 }, (_, index) => event('TOOL_CALL_REQUESTED', 1, `call_1.${index}`, { tool_name: 'mail.send' }))],
    5,
  );

  it('collapse more than twenty siblings of one tool into one, until they are opened', () => {
    expect(rowsOf(many, new Set(), new Set()).map((row) => row.collapsed)).toEqual([0, 30]);
    expect(rowsOf(many, new Set(), new Set(['call_1.0']))).toHaveLength(31);
  });

  it('hide what is inside of a closed call', () => {
    expect(rowsOf(spans, new Set([root?.callId ?? '']), new Set())).toHaveLength(1);
  });

  it('are made of 10,000 calls without delay', () => {
    const events = Array.from({ length: 10_000 }, (_, index) => event('TOOL_CALL_REQUESTED', index, `call_${index}`, { tool_name: `t${index}` }));
    expect(rowsOf(spansOf(events, 10_000), new Set(), new Set())).toHaveLength(10_000);
  });
});

describe('the scale', () => {
  it('is linear without pauses', () => {
    const scale = timeScale(100, 110, []);
    expect([100, 105, 110].map(scale.x)).toEqual([0, 0.5, 1]);
    expect(scale.ticks.map((tick) => tickLabel(tick.at)).slice(0, 3)).toEqual(['0 s', '2 s', '4 s']);
  });

  it('does not fold pauses of five seconds or less', () => {
    expect(timeScale(0, 100, [{ from: 10, to: 15 }]).folds).toEqual([]);
  });

  it('has room for the rest, however many pauses there are', () => {
    const pauses = Array.from({ length: 10 }, (_, index) => ({ from: index * 100 + 1, to: index * 100 + 90 }));
    const scale = timeScale(0, 1000, pauses);
    expect(scale.folds.reduce((sum, fold) => sum + fold.width, 0)).toBeCloseTo(0.52);
  });

  it('has no ticks inside of a pause of days, and ends', () => {
    const scale = timeScale(0, 900_000, [{ from: 2, to: 899_998 }]);
    expect(scale.ticks.length).toBeLessThan(12);
    expect(scale.ticks.every((tick) => tick.at <= 2 || tick.at >= 899_998)).toBe(true);
  });

  it('gives each event of an order the same room', () => {
    const scale = orderScale([0, 1, 100, 100]);
    expect([0, 1, 100].map(scale.x)).toEqual([0, 0.5, 1]);
  });

  it('stands an empty run and one of a single moment', () => {
    expect(orderScale([]).x(5)).toBe(0);
    expect(timeScale(5, 5, []).x(5)).toBe(0);
  });

  it.each([[0, '0 s'], [0.2, '200 ms'], [5, '5 s'], [362, '6:02'], [4200, '1:10:00']])('says %d s as %j', (seconds, label) => {
    expect(tickLabel(seconds)).toBe(label);
  });
});
