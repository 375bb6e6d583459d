/** Which fields are likely to contain secrets: their values are in no address, storage or copied command. */

import { isObject, type Json } from './json';
import { resolve, schemaOf, type JsonSchema, type SchemaRoot } from './resolve';

// The rule of `toolpost.schema.secrets`: a name is secret by its last words, so `token_count` is not.
const LAST_WORDS = new Set(
  'password passwords passwd pwd passphrase passcode secret secrets token credential credentials authorization cookie cookies bearer jwt otp cvv apikey apikeys'.split(' '),
);
const KEY_WORDS = new Set('api access account private secret signing encryption master session'.split(' '));
const NEUTRAL_TAILS = new Set('value text plain raw pem string str header data confirm confirmation new old'.split(' '));
const HARMLESS_TOKENS = new Set(
  'page next previous prev continuation sync cursor pagination change max min stop eos bos pad unk per'.split(' '),
);
const RUN_TOGETHER =
  /(password|passwd|passphrase|secretkey|clientsecret|privatekey|accesskey|apikey|sessionid|(access|auth|refresh|session|bearer|api|id)token)$/;

export function isSecretName(name: string): boolean {
  const words = (name.match(/[A-Z]+(?![a-z])|[A-Z]?[a-z]+/g) ?? []).map((word) => word.toLowerCase());
  while (words.length > 1 && NEUTRAL_TAILS.has(words.at(-1) ?? '')) words.pop();
  const last = words.at(-1) ?? '';
  const before = words.at(-2) ?? '';
  if (last === 'token' && HARMLESS_TOKENS.has(before)) return false;
  if (LAST_WORDS.has(last) || RUN_TOGETHER.test(last)) return true;
  if (['key', 'keys'].includes(last) && KEY_WORDS.has(before)) return true;
  return (before === 'session' && last === 'id') || (before === 'password' && last === 'hash');
}

export function isSecret(name: string, schema: JsonSchema): boolean {
  return schema.format === 'password' || schema.writeOnly === true || isSecretName(name);
}

/** The value with each secret replaced, or left out where `replace` returns undefined. */
export function withoutSecrets(
  value: Json,
  schema: JsonSchema,
  root: SchemaRoot,
  replace: (name: string) => Json | undefined = () => undefined,
): Json {
  const node = resolve(schema, root) ?? {};
  if (Array.isArray(value)) return value.map((one) => withoutSecrets(one, schemaOf(node.items), root, replace));
  if (!isObject(value)) return value;
  const properties = isObject(node.properties) ? node.properties : {};
  const kept = Object.entries(value).flatMap(([name, one]): [string, Json][] => {
    const inner = schemaOf(Object.hasOwn(properties, name) ? properties[name] : undefined);
    if (!isSecret(name, resolve(inner, root) ?? inner)) return [[name, withoutSecrets(one, inner, root, replace)]];
    const replaced = replace(name);
    return replaced === undefined ? [] : [[name, replaced]];
  });
  return Object.fromEntries(kept);
}
