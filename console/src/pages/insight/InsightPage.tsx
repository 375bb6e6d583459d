import { useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';

import { errorsQuery, seriesQuery, topQuery, type CallFilter, type Series } from '../../api/insight';
import { RANGE_NAMES, zoomTo, type Range, type Window } from '../../api/windows';
import { gatewayNow } from '../../format/clock';
import { formatClock, formatDateTime, formatMoment } from '../../format/time';
import { Page } from '../../shell/Page';
import { Button } from '../../ui/Button';
import { FilterChip } from '../../ui/Chip';
import { visible } from '../../ui/foreign-text';
import { CloseIcon, InsightIcon, TableIcon } from '../../ui/icons';
import { usePhone } from '../../ui/media';
import { Select } from '../../ui/Select';
import { Empty, Failure, Skeleton } from '../../ui/States';
import { Segmented } from '../../ui/Tabs';
import { insightWords, words } from '../../words';
import styles from './insight.module.css';
import { stepsOf } from './plot-data';
import { PlotCard } from './PlotCard';
import { callsPlot, errorsPlot, tookPlot, waitsPlot } from './plots';
import { TopCard } from './TopCard';

const ALL = '';

/** What was called in a window of time, how long it took, what failed, and how long people took to answer. */
export default function InsightPage() {
  const { range = '24h', by = 'tool', since, until, source, tool, view } = useSearch({ from: '/insight' });
  const navigate = useNavigate({ from: '/insight' });
  const window: Window = { range, ...(since !== undefined && until !== undefined && { zoom: { since, until } }) };
  const filter: CallFilter = { ...(tool !== undefined && { tool }), ...(source !== undefined && { source }) };
  const asTable = view === 'table';
  const isPhone = usePhone();

  const set = (change: object) => void navigate({ search: (now) => cleaned({ ...now, ...change }), replace: true });
  const reset = () => set({ since: undefined, until: undefined });
  const show = (only: CallFilter) => set({ tool: undefined, source: undefined, ...only });
  const filters = <Filters window={window} filter={filter} onChange={show} />;
  return (
    <Page
      title={words.shell.pages.insight}
      note={!isPhone && filters}
      actions={
        <>
          {window.zoom && (
            <FilterChip icon={CloseIcon} on onClick={reset} title={insightWords.resetZoom}>
              {rangeText(window)}
            </FilterChip>
          )}
          <Segmented<Range>
            label={insightWords.range}
            value={range}
            items={RANGE_NAMES.map((value) => ({ value, label: insightWords.ranges[value] }))}
            onChange={(next) => set({ range: next, since: undefined, until: undefined })}
          />
          <Button icon={asTable ? InsightIcon : TableIcon} onClick={() => set({ view: asTable ? undefined : 'table' })}>
            {asTable ? insightWords.asPlots : insightWords.asTable}
          </Button>
        </>
      }
    >
      <div className={styles.page}>
        {isPhone && filters}
        <Plots
          window={window}
          filter={filter}
          asTable={asTable}
          onZoom={(one, other) => set(zoomTo(one, other))}
          onReset={reset}
        />
        <TopCard
          by={by}
          window={window}
          range={rangeWords(window)}
          selected={by === 'tool' ? tool : source}
          onGroup={(next) => set({ by: next })}
          onSelect={(key) => show(by === 'tool' ? { tool: key } : { source: key })}
        />
      </div>
    </Page>
  );
}

interface PlotsProps {
  window: Window;
  filter: CallFilter;
  asTable: boolean;
  onZoom: (since: number, until: number) => void;
  onReset: () => void;
}

function Plots({ window, filter, ...rest }: PlotsProps) {
  const answer = useQuery(seriesQuery(window, filter));
  const errors = useQuery(errorsQuery(window, filter));
  if (answer.isPending) return <Skeleton rows={8} />;
  if (answer.error) return <Failure error={answer.error} onRetry={() => void answer.refetch()} />;
  const data = answer.data;
  const range = rangeWords(window);
  const steps = stepsOf(data, window.zoom?.until ?? gatewayNow());
  const shared = { steps, ...rest };
  if (data.series.length === 0) {
    return (
      <>
        <Empty title={insightWords.empty} />
        <Notes data={data} hasPlots={false} />
      </>
    );
  }
  return (
    <>
      <div className={styles.plots}>
        <PlotCard plot={callsPlot(data, range)} empty={insightWords.empty} name="insight-calls" {...shared} />
        <PlotCard plot={tookPlot(data, range)} empty={insightWords.empty} name="insight-durations" {...shared} />
        {errors.error ? (
          <Failure error={errors.error} onRetry={() => void errors.refetch()} />
        ) : (
          <PlotCard plot={errorsPlot(errors.data, filter, range)} empty={insightWords.noErrors} name="insight-errors" {...shared} />
        )}
        <PlotCard plot={waitsPlot(data, range)} empty={insightWords.noWaits} name="insight-approvals" {...shared} />
      </div>
      <Notes data={data} hasPlots={!rest.asTable} />
    </>
  );
}

/** Where the data begins, if that is within the window, and how to zoom. */
function Notes({ data, hasPlots }: { data: Series; hasPlots: boolean }) {
  const isPartial = data.data_since !== null && data.data_since > data.begin;
  return (
    <p className={styles.notes}>
      {isPartial && <span>{insightWords.dataSince(formatDateTime(data.data_since ?? 0))}</span>}
      {hasPlots && <span>{insightWords.zoomHint}</span>}
    </p>
  );
}

/** All sources or one, all tools or one. */
function Filters({ window, filter, onChange }: { window: Window; filter: CallFilter; onChange: (only: CallFilter) => void }) {
  const sources = useQuery(topQuery('source', window)).data?.items.map((item) => item.key) ?? [];
  const tools = useQuery(topQuery('tool', window)).data?.items.map((item) => item.key) ?? [];
  return (
    <span className={styles.filters}>
      <Select
        look="chip"
        label={insightWords.allSources}
        value={filter.source ?? ALL}
        options={optionsOf(insightWords.allSources, sources, filter.source)}
        onChange={(source) => onChange(source === ALL ? {} : { source })}
      />
      <Select
        look="chip"
        label={insightWords.allTools}
        value={filter.tool ?? ALL}
        options={optionsOf(insightWords.allTools, tools, filter.tool)}
        onChange={(tool) => onChange(tool === ALL ? {} : { tool })}
      />
    </span>
  );
}

function optionsOf(all: string, names: readonly string[], chosen: string | undefined) {
  const shown = chosen === undefined || names.includes(chosen) ? names : [chosen, ...names];
  return [{ value: ALL, label: all }, ...shown.map((name) => ({ value: name, label: visible(name) }))];
}

/** "in 24 h", or in the window of the zoom, which the header shows. */
function rangeWords({ range, zoom }: Window): string {
  return zoom ? insightWords.zoomed : insightWords.inRange(insightWords.ranges[range]);
}

function rangeText({ range, zoom }: Window): string {
  if (!zoom) return insightWords.ranges[range];
  return insightWords.between(formatDateTime(zoom.since), isSameDay(zoom) ? formatClock(zoom.until) : formatDateTime(zoom.until));
}

function isSameDay({ since, until }: { since: number; until: number }): boolean {
  return formatMoment(since, Infinity) === formatMoment(until, Infinity);
}

function cleaned<Search extends object>(search: Search): Search {
  return Object.fromEntries(Object.entries(search).filter(([, value]) => value !== undefined)) as Search;
}
