/** Pages that tools bring (MCP Apps), and the calls of such a page. */

import { BASE_URL } from './address';
import { requestTo, send } from './client';
import type { Outcome } from './types';

/** The address of the page, which opens once. */
export async function openApp(tool: string): Promise<string> {
  const response = await send(requestTo(`/api/v1/tools/${encodeURIComponent(tool)}/app`, { method: 'POST' }));
  const { url } = (await response.json()) as { url: string };
  return `${BASE_URL}/api/v1/apps${new URL(url).search}`;
}

export async function callForApp(tool: string, values: Record<string, unknown>): Promise<Outcome> {
  const headers = { 'Content-Type': 'application/json' };
  const body = JSON.stringify({ tool, arguments: values });
  return (await (await send(requestTo('/api/v1/calls', { method: 'POST', headers, body }))).json()) as Outcome;
}
