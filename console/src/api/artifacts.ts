/** Files: uploaded for calls, and read as a whole or in part. */

import { api, body, requestTo, send } from './client';
import type { Artifact } from './types';

const MOST_IN_MEMORY = 64_000_000;

/** Store a file, so that a call can refer to it. */
export async function uploadArtifact(file: File): Promise<Artifact> {
  const response = await send(
    requestTo(`/api/v1/artifacts?name=${encodeURIComponent(file.name)}`, {
      method: 'POST',
      headers: { 'Content-Type': file.type || 'application/octet-stream' },
      body: file,
    }),
  );
  return (await response.json()) as Artifact;
}

/** The bytes of an artifact, or only the first `atMost`. */
export async function readArtifact(id: string, atMost?: number): Promise<Blob> {
  const headers: HeadersInit = atMost === undefined ? {} : { Range: `bytes=0-${atMost - 1}` };
  const response = await send(requestTo(`/api/v1/artifacts/${encodeURIComponent(id)}/content`, { headers }));
  return response.blob();
}

/** Let the browser save an artifact as a file. A large one does not pass through the memory of the page. */
export async function saveArtifact({ id, size }: Artifact, name: string): Promise<void> {
  if (size <= MOST_IN_MEMORY) saveBlob(await readArtifact(id), name);
  else saveFrom((await body(api.POST('/api/v1/artifacts/{artifact_id}/link', { params: { path: { artifact_id: id } } }))).url, name);
}

/** Let the browser save a blob as a file. */
export function saveBlob(blob: Blob, name: string): void {
  const address = URL.createObjectURL(blob);
  saveFrom(address, name);
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

function saveFrom(address: string, name: string) {
  const link = document.createElement('a');
  link.href = address;
  link.download = name;
  link.click();
}
