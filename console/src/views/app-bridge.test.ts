import { describe, expect, it, vi } from 'vitest';

import type { Outcome } from '../api/types';
import { answerTo, messageOf, type AppHost } from './app-bridge';

function host(outcome: Partial<Outcome> = { status: 'completed', content: 'sunny' }) {
  return { theme: 'dark', call: vi.fn(() => Promise.resolve(outcome as Outcome)), openLink: vi.fn(), onReady: vi.fn(), onHeight: vi.fn() } satisfies AppHost;
}

const ask = (method: string, params = {}) => ({ jsonrpc: '2.0' as const, id: 1, method, params });

describe('the host of an app', () => {
  it('introduces itself with the theme', async () => {
    const answer = await answerTo(ask('ui/initialize'), host());

    expect(answer?.result).toMatchObject({ hostInfo: { name: 'Toolpost' }, hostContext: { theme: 'dark' } });
  });

  it('calls tools for it, and gives the result in the form of MCP', async () => {
    const own = host();
    const answer = await answerTo(ask('tools/call', { name: 'rain', arguments: { city: 'Oslo' } }), own);

    expect(own.call).toHaveBeenCalledWith('rain', { city: 'Oslo' });
    expect(answer?.result).toEqual({ content: [{ type: 'text', text: 'sunny' }] });
  });

  it('says that a call waits, failed or was refused', async () => {
    const paused = await answerTo(ask('tools/call', { name: 'rain' }), host({ status: 'paused' }));
    const failed = await answerTo(ask('tools/call', { name: 'rain' }), host({ status: 'failed', error: { message: 'no' } as never }));
    const refusing = { ...host(), call: () => Promise.reject(new Error('not allowed')) };
    const refused = await answerTo(ask('tools/call', { name: 'rain' }), refusing);

    expect(paused?.error?.message).toBe('the call waits for an answer');
    expect(failed?.result).toEqual({ content: [{ type: 'text', text: 'no' }], isError: true });
    expect(refused?.error?.message).toBe('not allowed');
  });

  it.each(['javascript:alert(1)', 'file:///etc/passwd', 7])('does not open %s', async (url) => {
    const own = host();
    const answer = await answerTo(ask('ui/open-link', { url }), own);

    expect(own.openLink).not.toHaveBeenCalled();
    expect(answer?.error).toBeDefined();
  });

  it('knows no other methods, and takes no other messages', async () => {
    expect((await answerTo(ask('sampling/createMessage'), host()))?.error?.code).toBe(-32601);
    expect([null, 'text', { method: 'x' }, { jsonrpc: '2.0', method: 'x', params: 'y' }].map(messageOf)).toEqual([undefined, undefined, undefined, undefined]);
  });

  it('hears how high the page is, and that it is ready', async () => {
    const own = host();
    await answerTo({ jsonrpc: '2.0', method: 'ui/notifications/initialized' }, own);
    await answerTo({ jsonrpc: '2.0', method: 'ui/notifications/size-changed', params: { height: 240 } }, own);

    expect(own.onReady).toHaveBeenCalledOnce();
    expect(own.onHeight).toHaveBeenCalledWith(240);
  });
});
