import { describe, expect, it } from 'vitest';

import { ExactNumber } from '../../schema/json';
import { curlCommand, pythonCode, shellCommand, type CallToCopy } from './elsewhere';

const call = (given: CallToCopy['arguments'], schema: CallToCopy['schema'] = {}): CallToCopy => ({
  tool: 'billing.refund',
  arguments: given,
  schema,
  url: 'https://tools.acme.example/',
});

describe('the shell command', () => {
  it('has simple arguments one by one', () => {
    expect(shellCommand(call({ order: 7, currency: 'EUR' }))).toBe('toolpost tools call billing.refund \\\n  order=7 \\\n  currency=EUR');
  });

  it('quotes what a shell would take apart or run', () => {
    expect(shellCommand(call({ note: "it's $(rm -rf ~) `x` \n !" }))).toContain(`'note=it'\\''s $(rm -rf ~) \`x\` \n !'`);
  });

  it('has JSON where a name is no word', () => {
    expect(shellCommand(call({ 'odd name': 1 }))).toBe(`toolpost tools call billing.refund \\\n  --args '{"odd name":1}'`);
  });

  it('keeps numbers as they are written', () => {
    expect(shellCommand(call({ id: new ExactNumber('12345678901234567890') }))).toContain('id=12345678901234567890');
  });
});

describe('secrets', () => {
  const secret = call({ password: 'tulip-42', nested: { apiKey: 'k-1' }, pin: '0000' }, { properties: { pin: { format: 'password' } } });

  it.each([shellCommand, curlCommand, pythonCode])('are variables and never values (%o)', (write) => {
    const text = write(secret);
    expect(text).not.toMatch(/tulip-42|k-1|0000/);
    expect(text).toMatch(/PASSWORD/);
    expect(text).toMatch(/API_KEY/);
  });

  it('are outside of the single quotes of a shell', () => {
    expect(curlCommand(secret)).toContain(`"password":"'"$PASSWORD"'"`);
  });

  it('come from the environment in Python', () => {
    expect(pythonCode(secret)).toContain('"password": os.environ["PASSWORD"],');
  });
});

describe('curl and Python', () => {
  it('send the arguments to the tool', () => {
    expect(curlCommand(call({ a: [1, null] }))).toBe(
      `curl https://tools.acme.example/api/v1/tools/billing.refund \\\n  -H "Authorization: Bearer $TOOLPOST_KEY" \\\n  -H 'Content-Type: application/json' \\\n  -d '{"a":[1,null]}'`,
    );
  });

  it('write Python values', () => {
    const code = pythonCode(call({ a: true, b: null, c: ['x', {}], d: 'quote " and \\ and \n' }));
    expect(code).toContain('"a": True,');
    expect(code).toContain('"b": None,');
    expect(code).toContain('"d": "quote \\" and \\\\ and \\n",');
  });
});
