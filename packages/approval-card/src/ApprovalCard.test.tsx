import { act } from 'react';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { ApprovalCard, type ApprovalCardProps } from './ApprovalCard';
import { button, press, show, type } from './testing';
import type { Answer, PendingAction } from './types';

const NOW = 1_800_000_000;
const HOSTILE = '<img src=x onerror=alert(1)>\u202e<script>alert(1)</script>';

function answers(...decisions: string[]): PendingAction['answers'] {
  return decisions.map((decision) => ({ decision, schema: {} }));
}

function pending(change: Partial<PendingAction> = {}): PendingAction {
  return {
    id: 'ask_1',
    status: 'open',
    kind: 'approval',
    tool_name: 'billing.refund',
    prompt: 'It pays money back.',
    payload: {},
    arguments: { order: 7, password: '[redacted]' },
    masked: ['/password'],
    answers: answers('approve', 'modify', 'deny'),
    asked_by: 'acme:support',
    created_at: NOW - 60,
    expires_at: NOW + 3600,
    ...change,
  };
}

let sent: Answer[];

function card(action: PendingAction, props: Partial<ApprovalCardProps> = {}): HTMLElement {
  const onAnswer = (answer: Answer) => {
    sent.push(answer);
    return Promise.resolve({ status: 'completed', content: 'paid', duration_ms: 12 });
  };
  const place = show(<ApprovalCard action={action} onAnswer={onAnswer} {...props} />);
  wait(500);
  return place;
}

function wait(milliseconds: number): void {
  act(() => void vi.advanceTimersByTime(milliseconds));
}

async function settle(): Promise<void> {
  await act(async () => {
    await vi.advanceTimersByTimeAsync(0);
  });
}

function strike(element: Element, key: string, more: KeyboardEventInit = {}): void {
  act(() => void element.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true, ...more })));
}

/** The names of the answers, without the keys on them. */
function labels(place: Element): string[] {
  const names = [...place.querySelectorAll('footer button')].map((one) => [...one.childNodes].filter((node) => node.nodeName !== 'KBD'));
  return names.map((nodes) => nodes.map((node) => node.textContent).join(''));
}

beforeEach(() => {
  vi.useFakeTimers({ now: NOW * 1000 });
  sent = [];
});
afterEach(async () => {
  await settle();
  vi.useRealTimers();
});

describe('an approval', () => {
  it('shows the tool, who asks, why, the arguments and when it expires', () => {
    const place = card(pending({ caller: { kind: 'key', name: 'support-bot' } }));
    const text = place.textContent;

    for (const part of ['billing.refund', 'support-bot', 'acme:support', 'It pays money back.', 'order', '1 h 0 min']) {
      expect(text).toContain(part);
    }
    expect(labels(place)).toEqual(['Approve', 'Deny']);
  });

  it('never shows a masked value', () => {
    const place = card(pending());

    expect(place.textContent).toContain('•••••••• hidden');
    expect(place.textContent).not.toContain('[redacted]');
  });

  it('sends one answer, however often one presses', async () => {
    const place = card(pending());
    const approve = button(place, 'ApproveA');
    act(() => {
      for (let times = 0; times < 3; times += 1) approve?.click();
    });
    await settle();

    expect(sent).toEqual([{ decision: 'approve' }]);
    expect(place.textContent).toContain('Completed in 12 ms');
    expect(place.querySelector('pre')?.textContent).toBe('paid');
    expect(labels(place)).toEqual([]);
  });

  it('takes no press in its first 400 ms', () => {
    const onAnswer = (answer: Answer) => {
      sent.push(answer);
      return undefined;
    };
    const place = show(<ApprovalCard action={pending()} onAnswer={onAnswer} />);
    press(button(place, 'ApproveA'));
    wait(399);
    press(button(place, 'ApproveA'));
    expect(sent).toEqual([]);

    wait(1);
    press(button(place, 'ApproveA'));
    expect(sent).toHaveLength(1);
  });

  it('is denied with a reason', () => {
    const place = card(pending());
    press(button(place, 'DenyD'));
    type(place.querySelector('textarea'), ' Get a photo first. ');
    strike(place.querySelector('textarea') as Element, 'Enter', { ctrlKey: true });

    expect(sent).toEqual([{ decision: 'deny', reason: 'Get a photo first.' }]);
  });

  it('can be answered again after an error, whose message it shows', async () => {
    let fails = true;
    const onAnswer = (answer: Answer) => {
      sent.push(answer);
      return fails ? Promise.reject(new Error(HOSTILE)) : Promise.resolve(undefined);
    };
    const place = card(pending(), { onAnswer });
    press(button(place, 'ApproveA'));
    await settle();
    expect(place.querySelector('[role="alert"]')?.textContent).toContain('⟦U+202E⟧');

    fails = false;
    wait(500);
    press(button(place, 'ApproveA'));
    await settle();
    expect(sent).toHaveLength(2);
    expect(place.querySelector('footer')?.textContent).toContain('Approved');
  });

  it('offers changes only where there is a form for them', () => {
    const onEdit = vi.fn();
    const place = card(pending(), { onEdit });
    press(button(place, 'Approve with changesE'));

    expect(onEdit).toHaveBeenCalledOnce();
  });

  it('offers only what its viewer may do, and says why', () => {
    const denial = card(pending({ viewer: { may: ['deny'], why_not: 'You asked for it.' } }));
    expect(labels(denial)).toEqual(['Deny']);
    expect(denial.textContent).toContain('You can only deny this call: You asked for it.');

    const none = card(pending({ viewer: { may: [], why_not: 'You asked for it.' } }));
    expect(labels(none)).toEqual([]);
    expect(none.textContent).toContain('You cannot answer: You asked for it.');
  });

  it('cannot be answered after it expired', () => {
    const place = card(pending({ expires_at: NOW + 2 }));
    expect(labels(place)).toEqual(['Approve', 'Deny']);

    wait(3000);
    expect(labels(place)).toEqual([]);
    expect(place.textContent).toContain('No one answered in time, so the call was denied.');
  });

  it('of a changed definition shows the change', () => {
    const change = { part: 'description', before: 'Read a file.', after: 'Read and send a file.' };
    const place = card(pending({ reason: 'definition_changed', payload: { changes: [change], warnings: ['injection'] } }));

    expect(place.textContent).toContain('Definition changed');
    expect(place.textContent).toContain('injection');
    expect(labels(place)).toEqual(['Accept and run', 'Deny']);
  });

  it('with untrusted content names the call that read it', () => {
    const place = card(pending({ taint: [{ tool: 'web_fetch', origin: 'forum.example' }] }));

    expect(place.textContent).toContain('Untrusted content is in this call. web_fetch read it from forum.example.');
  });
});

describe('the keys of a card', () => {
  it('arm Approve with A, and disarm it', () => {
    const place = card(pending());
    const heading = place.querySelector('h2') as HTMLElement;
    strike(heading, 'a');
    expect(document.activeElement).toBe(button(place, 'ApproveA'));
    expect(sent).toEqual([]);

    strike(heading, 'a');
    expect(document.activeElement).not.toBe(button(place, 'ApproveA'));
  });

  it('open the denial with D, and close it with Escape', () => {
    const place = card(pending());
    strike(place.querySelector('h2') as HTMLElement, 'd');
    const reason = place.querySelector('textarea') as HTMLElement;
    strike(reason, 'a');
    expect(document.activeElement).not.toBe(button(place, 'ApproveA'));

    strike(reason, 'Escape');
    expect(place.querySelector('textarea')).toBeNull();
    expect(sent).toEqual([]);
  });

  it('leave combinations to the browser', () => {
    const place = card(pending());
    strike(place.querySelector('h2') as HTMLElement, 'd', { ctrlKey: true });

    expect(place.querySelector('textarea')).toBeNull();
  });
});

describe('other kinds', () => {
  const question = (schema: object): PendingAction =>
    pending({
      kind: 'input',
      prompt: 'Which branch?',
      arguments: {},
      answers: [{ decision: 'answer', schema: { properties: { value: schema } } }, ...answers('deny')],
    });

  it('a yes or no has two buttons', () => {
    const place = card(question({ type: 'boolean' }));
    expect(place.textContent).toContain('Which branch?');

    press(button(place, 'No'));
    expect(sent).toEqual([{ decision: 'answer', value: false }]);
  });

  it('a choice has a button for each', () => {
    press(button(card(question({ enum: ['main', 'next'] })), 'next'));

    expect(sent).toEqual([{ decision: 'answer', value: 'next' }]);
  });

  it('another value is JSON, which is checked', () => {
    const place = card(question({ type: 'object' }));
    type(place.querySelector('textarea'), '{');
    press(button(place, 'Answer'));
    expect(place.textContent).toContain('This is not valid JSON.');

    type(place.querySelector('textarea'), '{"a": 1}');
    press(button(place, 'Answer'));
    expect(sent).toEqual([{ decision: 'answer', value: { a: 1 } }]);
  });

  it('text is sent as it is', () => {
    const place = card(question({ type: 'string' }));
    type(place.querySelector('textarea'), '{');
    press(button(place, 'Answer'));

    expect(sent).toEqual([{ decision: 'answer', value: '{' }]);
  });

  it('a consent connects the account, or is refused', () => {
    const onConnect = vi.fn();
    const action = pending({ kind: 'consent', payload: { display_name: 'GitHub' }, arguments: {}, answers: answers('deny') });
    const place = card(action, { onConnect });
    press(button(place, 'Connect GitHub'));
    expect(onConnect).toHaveBeenCalledOnce();

    press(button(place, 'RefuseD'));
    press([...place.querySelectorAll('footer button')][0]);
    expect(sent).toEqual([{ decision: 'deny' }]);
  });

  it('an unknown outcome has three answers, and a second press before the call runs again', () => {
    const action = pending({ kind: 'unknown', answers: answers('happened', 'not_happened', 'rerun') });
    const place = card(action);
    press(button(place, 'Run it again'));
    expect(sent).toEqual([]);

    press(button(place, 'Press again: it may happen twice'));
    expect(sent).toEqual([{ decision: 'rerun' }]);
  });

  it('an outcome that happened can have a result', () => {
    const place = card(pending({ kind: 'unknown', answers: answers('happened', 'not_happened', 'rerun') }));
    press(button(place, 'It happened'));
    type(place.querySelector('textarea'), '[1]');
    press(button(place, 'It happened'));

    expect(sent).toEqual([{ decision: 'happened', value: [1] }]);
  });

  it('a restart has no answers', () => {
    expect(labels(card(pending({ kind: 'restart', answers: [] })))).toEqual([]);
  });
});

describe('a closed action', () => {
  it.each([
    ['answered', 'approve', 'acme:eva: approved'],
    ['answered', 'modify', 'acme:eva: approved with changes'],
    ['denied', 'deny', 'acme:eva: denied'],
  ] as const)('that was %s by %s is a receipt', (status, decision, text) => {
    const place = card(
      pending({ status, answer: { decision, reason: 'Because.' }, answered_by: 'acme:eva', answered_at: NOW - 120 }),
    );

    expect(place.textContent).toContain(text);
    expect(place.textContent).toContain('2 min ago');
    expect(place.textContent).toContain('“Because.”');
    expect(labels(place)).toEqual([]);
  });

  it.each([
    ['expired', 'No one answered in time, so the call was denied.'],
    ['cancelled', 'withdrawn'],
    ['claimed', 'being answered'],
  ] as const)('that is %s says so', (status, text) => {
    expect(card(pending({ status })).textContent).toContain(text);
  });

  it('has the error of its call', () => {
    const outcome = { status: 'failed', error: { error_code: 'timeout', message: 'It took 30 s.' } };
    const place = card(pending({ status: 'answered', answered_by: 'acme:eva', answered_at: NOW, outcome }));

    expect(place.textContent).toContain('timeout');
    expect(place.textContent).toContain('It took 30 s.');
  });
});

describe('a preview', () => {
  it('of a diff has its file and its lines', async () => {
    const text = '--- a/prices.toml\n+++ b/prices.toml\n@@ -1 +1 @@\n-lamp = 19\n+lamp = 21\n';
    const place = card(pending({ preview: { kind: 'diff', text } }));
    await act(async () => {
      await import('./previews/DiffPreview');
    });
    expect(place.textContent).toContain('prices.toml+1 −1');
    expect(place.textContent).toContain('lamp = 21');
  });

  it('of a request has its method, URL, headers, query and body', () => {
    const place = card(
      pending({
        preview: {
          kind: 'http_request',
          text: 'POST https://x.example/refunds',
          method: 'POST',
          url: 'https://x.example/refunds',
          query: [{ name: 'page', value: '2' }],
          headers: [{ name: 'Authorization', value: null, masked_by: 'billing' }],
          body: '{"euro": 9}',
        },
      }),
    );

    for (const part of ['POST', 'https://x.example/refunds', 'page', 'credential of billing, never shown', '"euro": 9']) {
      expect(place.textContent).toContain(part);
    }
  });

  it('of a command has one part a word', () => {
    const argv = ['rm', "x'; rm -rf /"];
    const place = card(pending({ preview: { kind: 'command', text: '', argv, cwd: '/srv', env_names: ['PATH'], stdin: null } }));

    expect([...place.querySelectorAll('[class*="word"] > span')].map((one) => one.textContent)).toEqual(
      expect.arrayContaining(argv),
    );
    expect(place.textContent).toContain('/srv');
  });

  it('of rows is a table', () => {
    const place = card(pending({ preview: { kind: 'table', text: '', columns: ['id'], rows: [[1], ['b']], total: 1204 } }));

    expect([...place.querySelectorAll('[role="region"] td')].map((one) => one.textContent)).toEqual(['1', 'b']);
    expect(place.textContent).toContain('1,204');
  });

  it('of text is folded', () => {
    const text = Array.from({ length: 60 }, (_, index) => `line ${index}`).join('\n');
    const place = card(pending({ preview: { kind: 'text', text }, truncated: true }));
    expect(place.textContent).not.toContain('line 45');
    expect(place.textContent).toContain('The preview is cut.');

    press(button(place, '20 more lines'));
    expect(place.textContent).toContain('line 59');
  });
});

describe('text of others', () => {
  const everywhere = (preview: PendingAction['preview']): PendingAction =>
    pending({
      tool_name: HOSTILE,
      prompt: HOSTILE,
      arguments: { [HOSTILE]: HOSTILE, nested: { [HOSTILE]: HOSTILE } },
      masked: [],
      asked_by: HOSTILE,
      caller: { kind: 'key', name: HOSTILE },
      tool: { description: HOSTILE, destructive: null },
      taint: [{ tool: HOSTILE, origin: HOSTILE }],
      preview,
      outcome: { status: 'completed', content: HOSTILE },
      viewer: { may: [], why_not: HOSTILE },
    });

  it.each([
    null,
    { kind: 'text', text: HOSTILE },
    { kind: 'command', text: '', argv: [HOSTILE], cwd: HOSTILE, env_names: [HOSTILE], stdin: HOSTILE },
    { kind: 'table', text: '', columns: [HOSTILE], rows: [[HOSTILE]], total: 1 },
    {
      kind: 'http_request',
      text: '',
      method: HOSTILE,
      url: HOSTILE,
      query: [{ name: HOSTILE, value: HOSTILE }],
      headers: [{ name: HOSTILE, value: HOSTILE, masked_by: null }],
      body: HOSTILE,
    },
  ])('is text and nothing else in %j', (preview) => {
    const place = card(everywhere(preview));

    expect(place.querySelectorAll('img, script, iframe, style')).toHaveLength(0);
    expect(place.textContent).not.toContain('\u202e');
    expect(place.textContent).toContain('⟦U+202E⟧');
  });

  it('is text in a consent, a question and a changed definition', () => {
    const consent = { kind: 'consent', payload: { display_name: HOSTILE } } as const;
    const schema = { properties: { value: { enum: [HOSTILE] } } };
    const question = { kind: 'input', answers: [{ decision: 'answer', schema }] } as const;
    const change = { reason: 'definition_changed', payload: { warnings: [HOSTILE], definition: { description: HOSTILE } } };
    for (const kind of [consent, { ...question, answers: [...question.answers] }, change]) {
      const place = card({ ...everywhere(null), outcome: null, viewer: undefined, ...kind }, { onConnect: () => undefined });
      expect(place.querySelectorAll('img, script, iframe, style')).toHaveLength(0);
      expect(place.textContent).not.toContain('\u202e');
    }
  });
});
