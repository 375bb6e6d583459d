import { useInfiniteQuery } from '@tanstack/react-query';
import { Link, useNavigate } from '@tanstack/react-router';
import { useEffect, useMemo, useRef, useState, type KeyboardEvent } from 'react';

import { toolListQuery, type ToolFilters, type ToolPage, type ToolSummary } from '../../api/tools';
import { PageTitle } from '../../shell/Page';
import { useKeys } from '../../shell/keys';
import { FilterChip } from '../../ui/Chip';
import { classes } from '../../ui/classes';
import { Input } from '../../ui/Field';
import { Foreign } from '../../ui/Foreign';
import { visible } from '../../ui/foreign-text';
import { Glyph } from '../../ui/Glyph';
import { DangerIcon, FindIcon } from '../../ui/icons';
import { List } from '../../ui/List';
import { Select } from '../../ui/Select';
import { Empty, Failure, Skeleton } from '../../ui/States';
import { ToolName } from '../../ui/ToolName';
import { toolWords, words } from '../../words';
import { effectLook } from './effects';
import styles from './Tools.module.css';

const REST_MS = 180;
const ROW_HEIGHT = 54;
const SHOWN_SOURCES = 2;

/** All tools, or those that match: searched by the gateway, filtered by what it counts. */
export function ToolList({ filters, selected }: { filters: ToolFilters; selected: string | undefined }) {
  const navigate = useNavigate();
  const query = useInfiniteQuery(toolListQuery(pick(filters)));
  const tools = useMemo(() => query.data?.pages.flatMap((page) => page.items) ?? [], [query.data]);
  const first = query.data?.pages[0];
  const change = (next: ToolFilters) => void navigate({ to: '.', search: (old) => cleaned({ ...old, ...next }), replace: true });
  const index = tools.findIndex((tool) => tool.name === selected);
  const open = (at: number) => {
    const tool = tools[at];
    if (tool) void navigate({ to: '/tools/$name', params: { name: tool.name }, search: pick(filters), replace: selected !== undefined });
  };
  const filtersId = JSON.stringify(pick(filters));
  const search = useRef<HTMLInputElement>(null);
  useKeys({ j: () => open(Math.min(index + 1, tools.length - 1)), k: () => open(Math.max(index - 1, 0)), '/': () => search.current?.focus() });

  function onKeyDown(event: KeyboardEvent) {
    const step = { ArrowDown: 1, ArrowUp: -1, Enter: index < 0 ? 1 : 0 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    open(Math.min(Math.max(index + step, 0), tools.length - 1));
  }
  return (
    <section className={styles.list} aria-label={words.shell.pages.tools}>
      <header className={styles.listTop}>
        <PageTitle title={words.shell.pages.tools} />
        <span className="end faint num">{first && toolWords.count(first.total, Math.max(first.total, totalOf(first)))}</span>
      </header>
      <div className={styles.find}>
        <SearchField ref={search} value={filters.q ?? ''} onChange={(q) => change({ q })} onKeyDown={onKeyDown} tookMs={first?.took_ms} />
        {first && <Filters filters={filters} facets={first.facets} onChange={change} />}
      </div>
      {query.isPending && <Skeleton rows={10} height={ROW_HEIGHT} />}
      {query.error && tools.length === 0 && <Failure error={query.error} onRetry={() => void query.refetch()} />}
      {query.isSuccess && tools.length === 0 && <EmptyList filters={filters} onClear={() => change({ q: '', source: '', tag: '', effect: '', verdict: '' })} />}
      <List
        key={filtersId}
        scrollId={filtersId}
        items={tools}
        label={words.shell.pages.tools}
        keyOf={(tool) => tool.name}
        rowHeight={ROW_HEIGHT}
        activeIndex={index}
        onEnd={() => {
          if (query.hasNextPage && !query.isFetchingNextPage) void query.fetchNextPage();
        }}
        render={(tool) => <ToolRow tool={tool} on={tool.name === selected} search={pick(filters)} />}
      />
    </section>
  );
}

interface SearchFieldProps {
  value: string;
  onChange: (value: string) => void;
  onKeyDown: (event: KeyboardEvent) => void;
  tookMs: number | undefined;
  ref: React.Ref<HTMLInputElement>;
}

/** Searches after a short pause, so that typing is not interrupted. */
function SearchField({ value, onChange, onKeyDown, tookMs, ref }: SearchFieldProps) {
  const [text, setText] = useState(value);
  const [shown, setShown] = useState(value);
  if (shown !== value) {
    setShown(value);
    if (value !== text.trim()) setText(value);
  }
  useEffect(() => {
    if (text.trim() === value) return undefined;
    const timer = setTimeout(() => onChange(text.trim()), REST_MS);
    return () => clearTimeout(timer);
  }, [text, value, onChange]);
  return (
    <div className={styles.search}>
      <Glyph icon={FindIcon} />
      <Input
        ref={ref}
        type="search"
        aria-label={toolWords.search}
        placeholder={toolWords.search}
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={onKeyDown}
      />
      {tookMs !== undefined && value !== '' && <span className="faint num t12">{toolWords.tookMs(tookMs)}</span>}
    </div>
  );
}

/** The two largest sources as chips, and a menu for each other property. */
function Filters({ filters, facets, onChange }: { filters: ToolFilters; facets: ToolPage['facets']; onChange: (next: ToolFilters) => void }) {
  const sources = Object.entries(facets.source ?? {}).filter(([name]) => name !== '' && name !== 'null');
  const largest = sources.slice(0, SHOWN_SOURCES);
  const isShown = filters.source === undefined || largest.some(([name]) => name === filters.source);
  return (
    <div className={styles.filters}>
      {largest.map(([name, count]) => (
        <FilterChip key={name} on={filters.source === name} onClick={() => onChange({ source: filters.source === name ? '' : name })}>
          <Foreign text={name} limit={40} /> <span className="num">{count.toLocaleString()}</span>
        </FilterChip>
      ))}
      {sources.length > SHOWN_SOURCES && (
        <Facet label={toolWords.anySource} counts={facets.source} value={isShown ? '' : (filters.source ?? '')} onChange={(source) => onChange({ source })} />
      )}
      <Facet
        label={toolWords.anyEffect}
        counts={facets.side_effects}
        value={filters.effect ?? ''}
        onChange={(effect) => onChange({ effect })}
        wordOf={(effect) => words.effects[effect] ?? effect}
      />
      <Facet
        label={toolWords.anyVerdict}
        counts={facets.verdict}
        value={filters.verdict ?? ''}
        onChange={(verdict) => onChange({ verdict })}
        wordOf={(verdict) => toolWords.action[verdict] ?? verdict}
      />
      <Facet label={toolWords.anyTag} counts={facets.tag} value={filters.tag ?? ''} onChange={(tag) => onChange({ tag })} />
    </div>
  );
}

interface FacetProps {
  label: string;
  counts: Record<string, number> | undefined;
  value: string;
  onChange: (value: string) => void;
  wordOf?: (value: string) => string;
}

function Facet({ label, counts, value, onChange, wordOf = visible }: FacetProps) {
  const entries = Object.entries(counts ?? {}).filter(([name]) => name !== '' && name !== 'null');
  if (entries.length === 0 && value === '') return null;
  const options = [
    { value: '', label: value === '' ? label : toolWords.any },
    ...entries.map(([name, count]) => ({ value: name, label: `${wordOf(name)} ${count.toLocaleString()}` })),
  ];
  return <Select look="chip" label={label} options={options} value={value} onChange={onChange} />;
}

function ToolRow({ tool, on, search }: { tool: ToolSummary; on: boolean; search: ToolFilters }) {
  const look = effectLook(tool);
  return (
    <Link to="/tools/$name" params={{ name: tool.name }} search={search} className={classes(styles.row, on && styles.on)} aria-current={on || undefined}>
      <span className={styles.rowText}>
        <span className={styles.rowName}>
          <ToolName name={tool.name} />
        </span>
        <span className="cut soft">
          <Foreign text={tool.description} limit={200} />
        </span>
      </span>
      <span className={styles.rowIcons}>
        {tool.held && (
          <span className="wait-ink" title={toolWords.held} aria-label={toolWords.held} role="img">
            <Glyph icon={DangerIcon} size={14} />
          </span>
        )}
        <span className={styles[look.tone]} title={look.word} aria-label={look.word} role="img">
          <Glyph icon={look.icon} size={16} />
        </span>
      </span>
    </Link>
  );
}

function EmptyList({ filters, onClear }: { filters: ToolFilters; onClear: () => void }) {
  const { q, ...others } = pick(filters);
  const filtered = Object.keys(others).length > 0;
  const title = filtered ? toolWords.emptyFilter : q ? toolWords.emptySearch(q) : toolWords.emptyTools;
  return (
    <Empty
      title={title}
      actions={
        (filtered || q) && (
          <button type="button" className="link" onClick={onClear}>
            {toolWords.clear}
          </button>
        )
      }
    />
  );
}

/** The filters of the list, without the tab of a tool. */
function pick({ q, source, tag, effect, verdict }: ToolFilters): ToolFilters {
  return cleaned({ q, source, tag, effect, verdict });
}

function cleaned<Search extends object>(search: Search): Search {
  return Object.fromEntries(Object.entries(search).filter(([, value]) => value !== undefined && value !== '')) as Search;
}

/** All tools, of which the filter of the source shows some. */
function totalOf(page: ToolPage): number {
  return Object.values(page.facets.source ?? {}).reduce((sum, count) => sum + count, 0);
}
