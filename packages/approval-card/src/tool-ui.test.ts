import { describe, expect, it } from 'vitest';

import { toolUiPayload } from './tool-ui';
import type { PendingAction } from './types';

const ACTION: PendingAction = {
  id: 'ask_1',
  status: 'open',
  kind: 'approval',
  tool_name: 'billing.refund',
  prompt: 'It pays money back.',
  payload: {},
  arguments: { order: 7, key: '[redacted]' },
  masked: ['/key'],
  preview: { kind: 'http_request', text: 'POST https://x.example/{order}', method: 'POST', url: 'https://x.example/7' },
  answers: [],
  asked_by: 'acme:support',
  created_at: 0,
  expires_at: 1_800_000_000,
  tool: { description: 'Refund.', destructive: true },
};

describe('the payload for tool-ui', () => {
  it('has the fields of its approval card', () => {
    expect(toolUiPayload(ACTION)).toEqual({
      id: 'ask_1',
      role: 'decision',
      title: 'billing.refund',
      description: 'It pays money back.',
      icon: 'send',
      metadata: [
        { key: 'Asked by', value: 'acme:support' },
        { key: 'What would be sent', value: 'POST https://x.example/7' },
        { key: 'order', value: '7' },
        { key: 'key', value: '•••••••• hidden' },
        { key: 'Expires', value: '2027-01-15T08:00:00.000Z' },
      ],
      variant: 'destructive',
      confirmLabel: 'Approve',
      cancelLabel: 'Deny',
    });
  });

  it.each([
    ['answered', 'approved'],
    ['denied', 'denied'],
    ['expired', 'denied'],
    ['cancelled', 'denied'],
    ['claimed', undefined],
  ] as const)('of a call that is %s has the choice %s', (status, choice) => {
    expect(toolUiPayload({ ...ACTION, status })?.choice).toBe(choice);
  });

  it('can be sent as JSON, with hidden characters by number and nothing empty or long', () => {
    const hostile = '\u202e<script>';
    const payload = toolUiPayload({ ...ACTION, tool_name: hostile, arguments: { [hostile]: 'x'.repeat(5000), '': '' } });

    expect(JSON.parse(JSON.stringify(payload))).toEqual(payload);
    expect(payload?.title).toBe('⟦U+202E⟧<script>');
    expect(payload?.metadata.every(({ key, value }) => key !== '' && value !== '' && value.length <= 301)).toBe(true);
  });

  it('names untrusted content and says how many arguments are left out', () => {
    const values = Object.fromEntries(Array.from({ length: 30 }, (_, index) => [`a${index}`, index]));
    const metadata = toolUiPayload({ ...ACTION, arguments: values, taint: [{ tool: 'web', origin: 'x.example' }] })?.metadata;

    expect(metadata).toContainEqual({ key: 'untrusted content', value: 'web read it from x.example.' });
    expect(metadata).toContainEqual({ key: 'Arguments', value: '10 more' });
  });

  it('asks to accept a changed definition', () => {
    const payload = toolUiPayload({ ...ACTION, reason: 'definition_changed' });

    expect([payload?.icon, payload?.confirmLabel]).toEqual(['shield-alert', 'Accept and run']);
  });

  it('is of approvals alone', () => {
    expect(toolUiPayload({ ...ACTION, kind: 'unknown' })).toBeUndefined();
  });
});
