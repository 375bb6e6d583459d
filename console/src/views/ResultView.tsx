import { Suspense, useMemo, useState } from 'react';

import { fromPlain, isObject, stringify, type Json } from '../schema/json';
import { tryParse } from '../schema/parse';
import { Chip } from '../ui/Chip';
import { UntrustedIcon } from '../ui/icons';
import { lazyPart } from '../ui/lazy-part';
import { Segmented } from '../ui/Tabs';
import { viewWords } from '../words';
import { ArtifactById } from './ArtifactView';
import { DataTable } from './DataTable';
import { JsonTree } from './JsonTree';
import styles from './ResultView.module.css';
import { tableOf } from './table-data';
import { TextView } from './TextView';

const Markdown = lazyPart(() => import('./Markdown'));

type Kind = 'tree' | 'table' | 'markdown' | 'text' | 'raw';
const MARKDOWN = /^(#{1,6} |[-*] |\d+\. |> |```|\|.+\|$)/m;

interface ResultViewProps {
  content: unknown;
  artifacts?: readonly string[];
  /** Where untrusted content came from; `untrusted` marks the frame. */
  untrusted?: boolean;
  origin?: string;
  /** Names the file of a table. */
  name: string;
  /** In the line of the choice, before it. */
  lead?: React.ReactNode;
}

/** The result of a tool: as a tree, a table, Markdown or text, with its files. It is shown and never run. */
export function ResultView({ content, artifacts = [], untrusted, origin, name, lead }: ResultViewProps) {
  const value = useMemo(() => valueOf(content), [content]);
  const kinds = useMemo(() => kindsOf(value), [value]);
  const [picked, setPicked] = useState<Kind>();
  const kind = picked && kinds.includes(picked) ? picked : (kinds[0] ?? 'raw');
  return (
    <div className={styles.result}>
      <div className={styles.line}>
        {lead}
        {kinds.length > 1 && (
          <span className="end">
            <Segmented label={viewWords.result} items={kinds.map((one) => ({ value: one, label: viewWords[one] }))} value={kind} onChange={setPicked} />
          </span>
        )}
      </div>
      <div className={untrusted ? styles.untrusted : undefined}>
        {untrusted && (
          <Chip tone="taint" icon={UntrustedIcon}>
            {origin ? viewWords.untrustedFrom(origin) : viewWords.untrusted}
          </Chip>
        )}
        <Content value={value} kind={kind} name={name} />
      </div>
      {artifacts.map((id) => (
        <ArtifactById key={id} id={id} />
      ))}
    </div>
  );
}

function Content({ value, kind, name }: { value: Json; kind: Kind; name: string }) {
  const table = kind === 'table' ? tableOf(value) : undefined;
  if (table) return <DataTable data={table} name={name} />;
  const text = typeof value === 'string' ? value : stringify(value, 2);
  if (kind === 'markdown') {
    return (
      <Suspense>
        <Markdown text={text} />
      </Suspense>
    );
  }
  return kind === 'tree' ? <JsonTree value={value} /> : <TextView text={text} />;
}

function kindsOf(value: Json): Kind[] {
  if (typeof value === 'string') return MARKDOWN.test(value) ? ['markdown', 'text'] : ['text'];
  if (tableOf(value)) return Array.isArray(value) ? ['table', 'tree', 'raw'] : ['tree', 'table', 'raw'];
  return Array.isArray(value) || isObject(value) ? ['tree', 'raw'] : ['raw'];
}

/** A text that is JSON is shown as what it means. */
function valueOf(content: unknown): Json {
  const value = fromPlain(content);
  if (typeof value !== 'string' || !/^\s*[[{]/.test(value)) return value;
  const parsed = tryParse(value);
  return 'value' in parsed ? parsed.value : value;
}
