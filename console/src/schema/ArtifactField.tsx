import { useRef, useState, type DragEvent } from 'react';

import { Problem } from '../api/problem';
import { uploadArtifact } from '../api/artifacts';
import { formatBytes } from '../format/number';
import { IconButton } from '../ui/Button';
import { Input } from '../ui/Field';
import { Foreign } from '../ui/Foreign';
import { Glyph } from '../ui/Glyph';
import { AttachmentIcon, CloseIcon } from '../ui/icons';
import { schemaWords } from '../words';
import styles from './Form.module.css';
import { isObject, type Json } from './json';
import type { FieldProps } from './Node';

/** A file: dropped or chosen, stored as an artifact, and given to the tool by its ID. */
export function ArtifactField({ value, onChange, schema, id, disabled, name, onBlur }: FieldProps) {
  const [size, setSize] = useState<number>();
  const [uploading, setUploading] = useState<string>();
  const [problem, setProblem] = useState<Problem>();
  const chooser = useRef<HTMLInputElement>(null);
  const file = isObject(value) ? value : {};
  const artifactId = typeof file.artifact_id === 'string' ? file.artifact_id : '';

  async function upload(chosen: File) {
    setProblem(undefined);
    setUploading(chosen.name);
    try {
      const stored = await uploadArtifact(chosen);
      setSize(stored.size);
      onChange(referenceTo(stored.id, chosen.name, schema.properties));
    } catch (error) {
      setProblem(Problem.of(error));
    } finally {
      setUploading(undefined);
    }
  }
  function drop(event: DragEvent) {
    event.preventDefault();
    const [dropped] = event.dataTransfer.files;
    if (dropped && !disabled) void upload(dropped);
  }
  return (
    <div className={styles.artifact}>
      <div className={styles.drop} onDragOver={(event) => event.preventDefault()} onDrop={drop}>
        <Glyph icon={AttachmentIcon} size={14} />
        {artifactId ? (
          <>
            <span className="cut">
              <Foreign text={typeof file.filename === 'string' ? file.filename : artifactId} limit={120} />
            </span>
            <span className="faint">
              {size !== undefined && `${formatBytes(size)}, `}
              {schemaWords.keptFile}
            </span>
            <span className="end">
              <IconButton icon={CloseIcon} label={schemaWords.clear} disabled={disabled} className={styles.small} onClick={() => onChange({})} />
            </span>
          </>
        ) : (
          <button type="button" className="soft grow" disabled={disabled || uploading !== undefined} onClick={() => chooser.current?.click()}>
            {uploading === undefined ? schemaWords.dropFile : schemaWords.uploading(uploading)}
          </button>
        )}
        <input
          ref={chooser}
          id={id}
          type="file"
          className="visually-hidden"
          tabIndex={-1}
          aria-label={name}
          onChange={(event) => {
            const [chosen] = event.target.files ?? [];
            if (chosen) void upload(chosen);
            event.target.value = '';
          }}
        />
      </div>
      {!artifactId && (
        <Input
          className="mono"
          aria-label={`${name}: ${schemaWords.artifactId}`}
          placeholder={schemaWords.artifactId}
          value={artifactId}
          disabled={disabled}
          onBlur={onBlur}
          onChange={(event) => onChange({ artifact_id: event.target.value.trim() })}
        />
      )}
      {problem && (
        <p className={styles.error} role="alert">
          <Foreign text={problem.detail} />
        </p>
      )}
    </div>
  );
}

function referenceTo(id: string, filename: string, properties: unknown): Json {
  const named = isObject(properties) && Object.hasOwn(properties, 'filename');
  return named ? { artifact_id: id, filename } : { artifact_id: id };
}
