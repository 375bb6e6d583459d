/**
 * The host side of MCP Apps (SEP-1865): JSON-RPC over postMessage with a page in a sandboxed frame. The page can only ask;
 * its calls are those of the person who looks at it, and the policy decides about each.
 */

import type { Outcome } from '../api/types';

const PROTOCOL = '2026-01-26';
const NO_METHOD = -32601;
const REFUSED = -32000;
const LARGEST = 200_000;

export interface AppHost {
  theme: 'light' | 'dark';
  /** Call a tool of the same server. */
  call: (name: string, values: Record<string, unknown>) => Promise<Outcome>;
  openLink: (url: string) => void;
  onReady: () => void;
  onHeight: (height: number) => void;
}

export interface RpcMessage {
  jsonrpc: '2.0';
  id?: string | number;
  method?: string;
  params?: Record<string, unknown>;
  result?: unknown;
  error?: { code: number; message: string };
}

/** The message in some data, or undefined for anything else that a page sends. */
export function messageOf(data: unknown): RpcMessage | undefined {
  if (typeof data !== 'object' || data === null) return undefined;
  const { jsonrpc, method, params } = data as Partial<Record<keyof RpcMessage, unknown>>;
  if (jsonrpc !== '2.0' || typeof method !== 'string') return undefined;
  if (params !== undefined && (typeof params !== 'object' || params === null)) return undefined;
  return data as RpcMessage;
}

/** Do what a page asks for, and return the answer; nothing for a notification. */
export async function answerTo({ id, method, params = {} }: RpcMessage, host: AppHost): Promise<RpcMessage | undefined> {
  if (id === undefined) {
    notified(method, params, host);
    return undefined;
  }
  const answer = (result: unknown): RpcMessage => ({ jsonrpc: '2.0', id, result });
  const refuse = (code: number, message: string): RpcMessage => ({ jsonrpc: '2.0', id, error: { code, message } });
  switch (method) {
    case 'ui/initialize':
      return answer({
        protocolVersion: PROTOCOL,
        hostInfo: { name: 'Toolpost', version: '1' },
        hostCapabilities: { serverTools: {}, openLinks: {} },
        hostContext: { theme: host.theme, displayMode: 'inline', availableDisplayModes: ['inline'] },
      });
    case 'ping':
      return answer({});
    case 'ui/open-link':
      if (typeof params.url !== 'string' || !/^https?:\/\//i.test(params.url)) return refuse(REFUSED, 'only http and https');
      host.openLink(params.url);
      return answer({});
    case 'tools/call': {
      const { name, arguments: values } = params;
      if (typeof name !== 'string' || JSON.stringify(values ?? {}).length > LARGEST) return refuse(REFUSED, 'invalid call');
      try {
        const outcome = await host.call(name, (values ?? {}) as Record<string, unknown>);
        return outcome.status === 'paused' ? refuse(REFUSED, 'the call waits for an answer') : answer(toolResult(outcome));
      } catch (error) {
        return refuse(REFUSED, error instanceof Error ? error.message : String(error));
      }
    }
    default:
      return refuse(NO_METHOD, `no method ${method ?? ''}`);
  }
}

function notified(method: string | undefined, params: Record<string, unknown>, host: AppHost): void {
  if (method === 'ui/notifications/initialized') host.onReady();
  if (method === 'ui/notifications/size-changed' && typeof params.height === 'number') host.onHeight(params.height);
}

/** An outcome as the result of a tool in MCP. */
export function toolResult({ status, content, error }: Outcome): Record<string, unknown> {
  if (status === 'failed') return { content: [{ type: 'text', text: error?.message ?? '' }], isError: true };
  const text = typeof content === 'string' ? content : JSON.stringify(content);
  const isObject = typeof content === 'object' && content !== null && !Array.isArray(content);
  return { content: [{ type: 'text', text }], ...(isObject && { structuredContent: content }) };
}
