/** The same call as a shell command, with curl, and in Python. Secrets are variables of the environment. */

import { isObject, stringify, type Json, type JsonObject } from '../../schema/json';
import type { JsonSchema } from '../../schema/resolve';
import { withoutSecrets } from '../../schema/secrets';

export interface CallToCopy {
  tool: string;
  arguments: Json;
  schema: JsonSchema;
  /** The public URL of the gateway. */
  url: string;
}

// Stands for a variable while text is put together; no argument can contain it unescaped.
const OPEN = '\ue000';
const CLOSE = '\ue001';
const VARIABLE = new RegExp(`${OPEN}(\\w+)${CLOSE}`, 'g');

/** `toolpost tools call`: simple arguments one by one, others as JSON. */
export function shellCommand(call: CallToCopy): string {
  const given = masked(call);
  const pairs = Object.entries(given).map(([name, value]) => {
    const text = typeof value === 'string' ? value : stringify(value);
    return shellQuote(`${name}=${text}`);
  });
  const simple = Object.keys(given).every((name) => /^\w+$/.test(name));
  const parts = simple ? pairs : [`--args ${shellQuote(stringify(given))}`];
  return [`toolpost tools call ${shellQuote(call.tool)}`, ...parts].join(' \\\n  ');
}

export function curlCommand(call: CallToCopy): string {
  return [
    `curl ${shellQuote(addressOf(call))}`,
    '-H "Authorization: Bearer $TOOLPOST_KEY"',
    "-H 'Content-Type: application/json'",
    `-d ${shellQuote(stringify(masked(call)))}`,
  ].join(' \\\n  ');
}

export function pythonCode(call: CallToCopy): string {
  return [
    'import json',
    'import os',
    'import urllib.request',
    '',
    `arguments = ${pythonLiteral(masked(call), '')}`,
    'request = urllib.request.Request(',
    `    ${pythonString(addressOf(call))},`,
    '    data=json.dumps(arguments).encode(),',
    '    headers={"Authorization": f"Bearer {os.environ[\'TOOLPOST_KEY\']}", "Content-Type": "application/json"},',
    ')',
    'with urllib.request.urlopen(request) as response:',
    '    print(json.load(response))',
  ].join('\n');
}

function masked({ arguments: given, schema }: CallToCopy): JsonObject {
  const value = withoutSecrets(given, schema, { schema }, (name) => `${OPEN}${variableOf(name)}${CLOSE}`);
  return isObject(value) ? value : {};
}

function variableOf(name: string): string {
  const words = name.replace(/([a-z0-9])([A-Z])/g, '$1_$2').replace(/\W+/g, '_');
  return words.toUpperCase().replace(/^(\d)/, '_$1');
}

function addressOf({ url, tool }: CallToCopy): string {
  return `${url.replace(/\/$/, '')}/api/v1/tools/${encodeURIComponent(tool)}`;
}

/** A word of a POSIX shell; variables are outside of the single quotes. */
function shellQuote(text: string): string {
  if (/^[\w@%+:,./=-]+$/.test(text)) return text;
  const quoted = `'${text.replaceAll("'", `'\\''`)}'`;
  return quoted.replace(VARIABLE, `'"$$$1"'`).replace(/''(?=")|(?<=")''$/g, '');
}

function pythonLiteral(value: Json, margin: string): string {
  const inner = `${margin}    `;
  if (Array.isArray(value)) return enclose('[', value.map((one) => pythonLiteral(one, inner)), ']', margin);
  if (isObject(value)) {
    const entries = Object.entries(value).map(([name, one]) => `${pythonString(name)}: ${pythonLiteral(one, inner)}`);
    return enclose('{', entries, '}', margin);
  }
  if (value === null) return 'None';
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  return typeof value === 'string' ? pythonString(value) : stringify(value);
}

function enclose(open: string, parts: string[], close: string, margin: string): string {
  if (parts.length === 0) return open + close;
  return `${open}\n${parts.map((part) => `${margin}    ${part},\n`).join('')}${margin}${close}`;
}

/** A Python string; JSON's escapes are also Python's. */
function pythonString(text: string): string {
  const whole = new RegExp(`^${OPEN}(\\w+)${CLOSE}$`).exec(text);
  return whole ? `os.environ["${whole[1] ?? ''}"]` : JSON.stringify(text);
}
