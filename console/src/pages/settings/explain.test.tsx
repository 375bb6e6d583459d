import { describe, expect, it } from 'vitest';

import type { Explanation } from '../../api/types';
import { show } from '../../testing';
import { Verdict } from './Explain';

const EXPLANATION: Explanation = {
  action: 'ask',
  reason: 'it reaches outside',
  answerers: ['acme:treasury-*'],
  four_eyes: true,
  tool: 'billing.refund',
  user: 'acme:agent',
  rule: null,
  trace: [
    { rule: 1, text: 'deny: tools *.drop_*', outcome: 'no_match', why: 'the tool is not named' },
    { rule: 2, text: 'ask: side effects external', outcome: 'decides', why: '' },
    { rule: 0, text: 'template standard', outcome: 'not_reached', why: '' },
  ],
  issues: ['$.euro: must be a number'],
  preview: { kind: 'http_request', text: 'POST https://pay.example/refunds' },
  arguments: null,
  target: null,
  held: null,
};

describe('an explained verdict', () => {
  it('lists the rules in their order, with what each did and why', () => {
    const steps = [...show(<Verdict explanation={EXPLANATION} />).querySelectorAll('li')].map((step) => step.textContent);
    expect(steps).toHaveLength(3);
    expect(steps[0]).toContain('deny: tools *.drop_*');
    expect(steps[0]).toContain('the tool is not named');
    expect(steps[2]).toContain('template standard');
  });

  it('says who can answer, and what is wrong with the arguments', () => {
    const text = show(<Verdict explanation={EXPLANATION} />).textContent;
    expect(text).toContain('acme:treasury-*, but not the requester');
    expect(text).toContain('$.euro: must be a number');
  });
});

it('an explained verdict shows what the call would do', () => {
  expect(show(<Verdict explanation={EXPLANATION} />).querySelector('pre')?.textContent).toBe('POST https://pay.example/refunds');
});
