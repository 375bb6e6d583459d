// The TypeScript SDK: told and saying as told.py says.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [trial, kind, ...rest] = process.argv.slice(2);
const headers = { Authorization: `Bearer ${rest[1]}` };
const transport =
  kind === "http"
    ? new StreamableHTTPClientTransport(new URL(rest[0]), { requestInit: { headers } })
    : new StdioClientTransport({ command: rest[0], args: rest.slice(1) });
const client = new Client({ name: "trial", version: "1" });
await client.connect(transport);

const outcome = async (name, args) => {
  try {
    return JSON.stringify(await client.callTool({ name, arguments: args }));
  } catch (error) {
    return String(error);
  }
};

const names = (await client.listTools()).tools.map((tool) => tool.name).sort();
const came = {
  local__add: await outcome("local__add", { a: 2, b: 3 }),
  local__total: await outcome("local__total", { order: { lines: [{ product: "nail" }] } }),
  local__large: await outcome("local__large", {}),
  local__fail: await outcome("local__fail", {}),
  local__drop: await outcome("local__drop", { name: `${trial}-1` }),
};
const waiting = /pending_id: (ask_\w+)/.exec(came.local__drop);
if (waiting !== null) came.pending_wait = await outcome("pending_wait", { pending_id: waiting[1] });
console.log(JSON.stringify({ names, came }));
await client.close();
