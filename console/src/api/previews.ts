/** What a pending call would do with other arguments. */

import type { PreviewData } from '@toolpost/approval-card/types';
import { queryOptions } from '@tanstack/react-query';

import { requestTo, send } from './client';
import { keys } from './queries';

export interface ChangedCall {
  /** With secrets masked. */
  arguments: Record<string, unknown>;
  masked: string[];
  preview: PreviewData | null;
}

/** The preview of a pending call with changes, which are a JSON Patch. Nothing runs. */
export const changedPreviewQuery = (id: string, changes: string) =>
  queryOptions({
    queryKey: [...keys.card(id), 'preview', changes],
    queryFn: async ({ signal }) => {
      const headers = { 'Content-Type': 'application/json' };
      const body = `{"changes":${changes}}`;
      const request = requestTo(`/api/v1/pending/${encodeURIComponent(id)}/preview`, { method: 'POST', headers, body, signal });
      return (await (await send(request)).json()) as ChangedCall;
    },
    retry: false,
    staleTime: Infinity,
  });
