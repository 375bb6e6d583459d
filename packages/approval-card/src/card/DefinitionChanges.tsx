import { lazy, Suspense } from 'react';

import type { PendingAction } from '../types';
import { Chip } from '../ui/Chip';
import { Foreign } from '../ui/Foreign';
import { JsonText } from '../ui/JsonText';
import styles from './card.module.css';

const DiffPreview = lazy(() => import('../previews/DiffPreview'));

interface DefinitionChange {
  part: string;
  before: unknown;
  after: unknown;
}

/** What changed in the definition of a tool, part by part, or the whole of a new one; with the warnings of the scan. */
export function DefinitionChanges({ action: { payload } }: { action: PendingAction }) {
  const changes = Array.isArray(payload.changes) ? (payload.changes as Partial<DefinitionChange>[]) : [];
  const warnings = Array.isArray(payload.warnings) ? payload.warnings.map(String) : [];
  return (
    <>
      {warnings.length > 0 && (
        <p className="row wrap">
          {warnings.map((warning) => (
            <Chip key={warning} tone="taint">
              <Foreign text={warning} />
            </Chip>
          ))}
        </p>
      )}
      {changes.map((change, index) => (
        <section key={index} className={styles.panel}>
          <div className={styles.head}>
            <h3>
              <Foreign text={change.part ?? ''} />
            </h3>
          </div>
          <Suspense>
            <DiffPreview text={asDiff(change)} shown={60} />
          </Suspense>
        </section>
      ))}
      {changes.length === 0 && payload.definition !== undefined && <JsonText value={payload.definition} />}
      {changes.length === 0 && payload.definition === undefined && <JsonText value={payload} />}
    </>
  );
}

function asDiff({ part = '', before, after }: Partial<DefinitionChange>): string {
  const lines = (value: unknown, sign: string) =>
    textOf(value)
      .split('\n')
      .map((line) => sign + line);
  return [`--- ${part}`, `+++ ${part}`, '@@ -1 +1 @@', ...lines(before, '-'), ...lines(after, '+')].join('\n');
}

function textOf(value: unknown): string {
  if (value === undefined || value === null) return '';
  return typeof value === 'string' ? value : JSON.stringify(value, null, 2);
}
