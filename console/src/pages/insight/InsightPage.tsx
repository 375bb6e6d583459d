import { useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useMemo, useState } from 'react';

import { codesQuery, seriesQuery, topQuery, type GroupBy, type Window } from '../../api/insight';
import { sourcesQuery } from '../../api/queries';
import { gatewayNow } from '../../format/clock';
import { formatExact } from '../../format/time';
import { Page } from '../../shell/Page';
import { Button } from '../../ui/Button';
import { FilterChip } from '../../ui/Chip';
import { Foreign } from '../../ui/Foreign';
import { Select } from '../../ui/Select';
import { Empty, Failure, Skeleton } from '../../ui/States';
import { Segmented } from '../../ui/Tabs';
import { words } from '../../words';
import { insightWords } from '../../words-insight';
import styles from './Insight.module.css';
import { Plot } from './Plot';
import { callsPlot, durationsPlot, errorsPlot, metric, total, waitsPlot, type PlotData } from './plots';
import { PlotTable } from './PlotTable';
import { TopTable } from './TopTable';

const RANGES = { '1h': { length: 3600, step: 60 }, '24h': { length: 86_400, step: 900 }, '7d': { length: 604_800, step: 3600 }, '30d': { length: 2_592_000, step: 21_600 } } as const;
type Range = keyof typeof RANGES;
const NAMES = Object.keys(RANGES) as Range[];

/** What was called in a window of time, how long it took, what failed, and how long people took to answer. */
export default function InsightPage() {
  const search = useSearch({ from: '/insight' });
  const { range = '24h', by = 'tool', source, tool, since, until } = search;
  const navigate = useNavigate({ from: '/insight' });
  const [asTable, setAsTable] = useState(false);
  const { window, step } = useMemo(() => windowOf(range, since, until), [range, since, until]);
  const change = (next: Partial<typeof search>) => void navigate({ search: (now) => defined({ ...now, ...next }), replace: true });
  const zoomed = since !== undefined;
  return (
    <Page
      title={words.shell.pages.insight}
      note={<Filters source={source} tool={tool} onChange={change} />}
      actions={
        <>
          {zoomed && (
            <FilterChip on onClick={() => change({ since: undefined, until: undefined })}>
              {insightWords.resetZoom}
            </FilterChip>
          )}
          <Segmented<Range>
            label={insightWords.range}
            value={range}
            items={NAMES.map((value) => ({ value, label: insightWords.ranges[value] }))}
            onChange={(next) => change({ range: next, since: undefined, until: undefined })}
          />
          <Button aria-pressed={asTable} onClick={() => setAsTable(!asTable)}>
            {asTable ? insightWords.asPlots : insightWords.asTable}
          </Button>
        </>
      }
    >
      <div className={styles.page}>
        <Plots
          window={window}
          step={step}
          source={source}
          tool={tool}
          range={insightWords.ranges[range]}
          asTable={asTable}
          onZoom={(from, to) => change({ since: Math.floor(from), until: Math.ceil(to) })}
          onReset={() => change({ since: undefined, until: undefined })}
        />
        <Top by={by} window={window} range={insightWords.ranges[range]} onBy={(next) => change({ by: next })} />
      </div>
    </Page>
  );
}

interface PlotsProps {
  window: Window;
  step: number;
  source: string | undefined;
  tool: string | undefined;
  range: string;
  asTable: boolean;
  onZoom: (since: number, until: number) => void;
  onReset: () => void;
}

function Plots({ window, step, source, tool, range, asTable, onZoom, onReset }: PlotsProps) {
  const series = useQuery(seriesQuery(window, step, { source, tool }));
  const codes = useQuery(codesQuery(window, step));
  const plots = useMemo<PlotData[]>(() => {
    if (!series.data) return [];
    const word = insightWords.steps[series.data.step] ?? '';
    return [callsPlot(series.data, range, word), durationsPlot(series.data), ...(codes.data ? [errorsPlot(codes.data)] : []), waitsPlot(series.data)];
  }, [series.data, codes.data, range]);
  if (series.isPending) return <Skeleton rows={6} height={72} />;
  if (series.error) return <Failure error={series.error} onRetry={() => void series.refetch()} />;
  if (total(metric(series.data, 'calls')) + total(metric(series.data, 'asked')) === 0) return <Empty title={insightWords.empty} />;
  const begins = series.data.data_since;
  return (
    <>
      <div className={styles.plots}>
        {plots.map((data) => (asTable ? <PlotTable key={data.id} data={data} /> : <Plot key={data.id} data={data} onZoom={onZoom} onReset={onReset} />))}
      </div>
      <p className="faint t12">
        {!asTable && insightWords.zoomHint} {begins !== null && begins > window.since && insightWords.dataSince(formatExact(begins))}
      </p>
    </>
  );
}

function Filters({ source, tool, onChange }: { source: string | undefined; tool: string | undefined; onChange: (next: { source?: string; tool?: string }) => void }) {
  const sources = useQuery(sourcesQuery).data ?? [];
  return (
    <span className="row">
      <Select
        look="chip"
        label={insightWords.allSources}
        value={source ?? ''}
        onChange={(next) => onChange({ source: next, tool: undefined })}
        options={[{ value: '', label: insightWords.allSources }, ...sources.map(({ name }) => ({ value: name, label: name }))]}
      />
      {tool !== undefined && (
        <FilterChip on onClick={() => onChange({ tool: undefined })}>
          <Foreign text={tool} limit={60} /> ×
        </FilterChip>
      )}
    </span>
  );
}

function Top({ by, window, range, onBy }: { by: GroupBy; window: Window; range: string; onBy: (by: GroupBy) => void }) {
  const top = useQuery(topQuery(by, window));
  return (
    <section className={styles.top}>
      <div className={styles.caption}>
        <h2>{insightWords.by[by]}</h2>
        <span className="soft">{insightWords.byCalls(range)}</span>
        <span className="end">
          <Segmented<GroupBy>
            label={insightWords.byLabel}
            value={by}
            items={(['tool', 'source', 'user', 'code'] as const).map((value) => ({ value, label: insightWords.by[value] }))}
            onChange={onBy}
          />
        </span>
      </div>
      {top.isPending && <Skeleton />}
      {top.error && <Failure error={top.error} onRetry={() => void top.refetch()} />}
      {top.data?.items.length === 0 && <Empty inline title={insightWords.empty} />}
      {top.data && top.data.items.length > 0 && <TopTable items={top.data.items} by={by} />}
    </section>
  );
}

/** The window and its step; a zoomed window has about a hundred steps. */
function windowOf(range: Range, since: number | undefined, until: number | undefined): { window: Window; step: number } {
  if (since !== undefined && until !== undefined) {
    const step = Math.max(60, Math.ceil((until - since) / 100 / 60) * 60);
    return { window: { since, until }, step };
  }
  const { length, step } = RANGES[range];
  const end = Math.ceil(gatewayNow() / step) * step;
  return { window: { since: end - length, until: end }, step };
}

function defined<Search extends object>(search: Search): Search {
  return Object.fromEntries(Object.entries(search).filter(([, value]) => value !== undefined && value !== '')) as Search;
}
