import { useMutation, useQuery } from '@tanstack/react-query';
import { useEffect, useMemo } from 'react';

import { readArtifact, saveArtifact } from '../api/artifacts';
import { api, body } from '../api/client';
import type { Artifact } from '../api/types';
import { formatBytes } from '../format/number';
import { IconButton } from '../ui/Button';
import { Foreign } from '../ui/Foreign';
import { Glyph } from '../ui/Glyph';
import { AttachmentIcon, DownloadIcon } from '../ui/icons';
import { Failure } from '../ui/States';
import { viewWords } from '../words';
import styles from './ArtifactView.module.css';

const PREVIEW_BYTES = 65_536;
const MOST_IMAGE_BYTES = 20_000_000;
// An SVG is a document; it is shown as its source.
const IMAGES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp', 'image/avif'];
const TEXTS = /^(text\/|application\/(json|xml|yaml|x-yaml|x-ndjson|javascript|toml)|image\/svg)/;

/** A stored file by its ID: name, type, size, a preview and a download. */
export function ArtifactById({ id }: { id: string }) {
  const artifact = useQuery({
    queryKey: ['artifact', id],
    queryFn: ({ signal }) => body(api.GET('/api/v1/artifacts/{artifact_id}', { params: { path: { artifact_id: id } }, signal })),
  });
  if (artifact.error) return <Failure inline error={artifact.error} />;
  return artifact.data ? <ArtifactView artifact={artifact.data} /> : null;
}

export function ArtifactView({ artifact }: { artifact: Artifact }) {
  const { id, name, media_type: mediaType, size } = artifact;
  const isImage = IMAGES.includes(mediaType) && size <= MOST_IMAGE_BYTES;
  const title = name || id;
  const save = useMutation({ mutationFn: () => saveArtifact(artifact, title) });
  return (
    <div className={styles.artifact}>
      <div className={styles.head}>
        <Glyph icon={AttachmentIcon} />
        <div className="grow">
          <div className="medium cut">
            <Foreign text={title} limit={120} />
          </div>
          <div className="faint t12">
            <Foreign text={mediaType} limit={60} /> · {formatBytes(size)}
          </div>
        </div>
        <IconButton icon={DownloadIcon} label={viewWords.download} onClick={() => save.mutate()} disabled={save.isPending} />
      </div>
      {save.error && <Failure inline error={save.error} />}
      {isImage ? <ImagePreview id={id} name={title} /> : TEXTS.test(mediaType) && <TextPreview id={id} size={size} />}
    </div>
  );
}

function ImagePreview({ id, name }: { id: string; name: string }) {
  const blob = useQuery({ queryKey: ['artifact', id, 'content'], queryFn: () => readArtifact(id) }).data;
  const address = useMemo(() => (blob ? URL.createObjectURL(blob) : undefined), [blob]);
  useEffect(() => () => (address === undefined ? undefined : URL.revokeObjectURL(address)), [address]);
  return address === undefined ? null : <img className={styles.image} src={address} alt={name} />;
}

function TextPreview({ id, size }: { id: string; size: number }) {
  const text = useQuery({ queryKey: ['artifact', id, 'text'], queryFn: async () => (await readArtifact(id, PREVIEW_BYTES)).text() });
  if (text.error) return <Failure inline error={text.error} />;
  return (
    <div className={styles.text}>
      {size > PREVIEW_BYTES && <p className="faint t12">{viewWords.firstPart(formatBytes(PREVIEW_BYTES))}</p>}
      <pre className="code">{text.data !== undefined && <Foreign text={text.data} block />}</pre>
    </div>
  );
}
