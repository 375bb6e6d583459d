/** What the pages of sources fetch, and the changes that they make. */

import { queryOptions } from '@tanstack/react-query';

import { api, body } from './client';
import { keys } from './queries';
import type { components } from './schema';
import type { Source } from './types';

type Schemas = components['schemas'];
export type SourcePlan = Schemas['SourcePlan'];
export type DetectedSource = Schemas['DetectedSource'];
export type TriedSource = Schemas['TriedSource'];
export type Preset = Schemas['Preset'];
export type LockDifference = Schemas['LockDiff']['differences'][number];

export interface NewSource {
  what: string;
  name?: string;
  headers?: Record<string, string>;
}

export const sourceQuery = (name: string) =>
  queryOptions({
    queryKey: keys.source(name),
    queryFn: ({ signal }) => body(api.GET('/api/v1/sources/{name}', { params: { path: { name } }, signal })),
  });

export const presetsQuery = queryOptions({
  queryKey: ['presets'],
  queryFn: ({ signal }) => body(api.GET('/api/v1/presets', { signal })),
  staleTime: Infinity,
});

export const sourceLogQuery = (name: string) =>
  queryOptions({
    queryKey: [...keys.source(name), 'log'],
    queryFn: ({ signal }) => body(api.GET('/api/v1/sources/{name}/log', { params: { path: { name } }, signal })),
  });

/** The tools of a source that differ from the accepted definitions. */
export const lockDiffQuery = (source: string) =>
  queryOptions({
    queryKey: [...keys.sources, 'lock', source],
    queryFn: ({ signal }) => body(api.GET('/api/v1/lock/diff', { params: { query: { source } }, signal })),
  });

export const detectSource = ({ what, headers }: NewSource) => body(api.POST('/api/v1/sources/detect', { body: { what, ...(headers && { headers }) } }));

export const planSource = (source: NewSource) => body(api.POST('/api/v1/sources/plan', { body: source }));

export const planImport = (file: string) => body(api.POST('/api/v1/sources/import', { body: { file, name: 'mcp.json' } }));

/** Connect once, list the tools, and disconnect. Values of variables are used for this alone. */
export const trySource = (source: Record<string, unknown>, values: Record<string, string>) =>
  body(api.POST('/api/v1/sources/try', { body: { source: source as never, values } }));

/** Add a source; with `persist` also to the configuration file. */
export const addSource = (source: Record<string, unknown>, persist: boolean) =>
  body(api.POST('/api/v1/sources', { params: { query: { persist: persist ? 'yes' : 'no' } }, body: source as never }));

export const reloadSource = (name: string) => body(api.POST('/api/v1/sources/{name}/reload', { params: { path: { name } } }));

export const changeSource = (name: string, change: { enabled?: boolean; trust?: boolean }) =>
  body(api.PATCH('/api/v1/sources/{name}', { params: { path: { name } }, body: change }));

export const removeSource = ({ name, declared }: Source) =>
  api.DELETE('/api/v1/sources/{name}', { params: { path: { name }, query: { persist: declared ? 'yes' : 'no' } } });

/** Accept definitions as they were shown. */
export const acceptDefinitions = (differences: readonly LockDifference[]) =>
  body(
    api.POST('/api/v1/lock/approve', {
      body: { tools: differences.map(({ tool }) => tool), hashes: Object.fromEntries(differences.map(({ tool, hash }) => [tool, hash])) },
    }),
  );
