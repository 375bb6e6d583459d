import { useEffect, useRef, useState } from 'react';
import UPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';

import { formatClock, formatDuration, formatMoment } from '../../format/time';
import { usePreferences } from '../../shell/preferences';
import { Foreign } from '../../ui/Foreign';
import { useMedia } from '../../ui/media';
import styles from './Insight.module.css';
import { stacked, type PlotData, type PlotSeries } from './plots';

const HEIGHT = 170;
const SYNC = 'insight';
const SHOWN_AS_CLOCK_S = 172_800;
// The enum is only in the types of the library, so its values are numbers here.
/* eslint-disable @typescript-eslint/no-unsafe-enum-assignment */
const RIGHT = 1 as UPlot.Axis.Side;
const LEFT = 3 as UPlot.Axis.Side;
/* eslint-enable @typescript-eslint/no-unsafe-enum-assignment */

interface PlotProps {
  data: PlotData;
  onZoom: (since: number, until: number) => void;
  onReset: () => void;
}

/** One plot. All plots have the same cursor; dragging zooms into a window of time. */
export function Plot({ data, onZoom, onReset }: PlotProps) {
  const place = useRef<HTMLDivElement>(null);
  const [at, setAt] = useState<number>();
  const theme = usePreferences().theme;
  const dark = useMedia('(prefers-color-scheme: dark)');
  const latest = useRef({ onZoom, onReset });
  useEffect(() => {
    latest.current = { onZoom, onReset };
  });
  useEffect(() => {
    const element = place.current;
    if (!element) return undefined;
    const plot = new UPlot(
      optionsOf(data, element, {
        onMove: setAt,
        onZoom: (since, until) => latest.current.onZoom(since, until),
        onReset: () => latest.current.onReset(),
      }),
      [data.times, ...drawn(data.series)],
      element,
    );
    const observer = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.destroy();
    };
  }, [data, theme, dark]);
  return (
    <figure className={styles.plot}>
      <figcaption className={styles.caption}>
        <h2>{data.title}</h2>
        <span className="soft">{data.note}</span>
        <ul className={styles.legend}>
          {data.series.map((series) => (
            <li key={series.label}>
              <i aria-hidden style={{ background: `var(${series.colour})` }} />
              <Foreign text={series.label} limit={40} />
            </li>
          ))}
        </ul>
      </figcaption>
      <div ref={place} className={styles.canvas} />
      {at !== undefined && <Values data={data} at={at} />}
    </figure>
  );
}

/** The values at the cursor. */
function Values({ data, at }: { data: PlotData; at: number }) {
  const time = data.times[at];
  if (time === undefined) return null;
  return (
    <div className={styles.values} role="status">
      <b>{formatMoment(time, time)}</b>
      {data.series.map((series) => {
        const value = series.values[at];
        return value == null ? null : (
          <span key={series.label}>
            <Foreign text={series.label} limit={40} /> <span className="num">{series.duration ? formatDuration(value) : data.format(value)}</span>
          </span>
        );
      })}
    </div>
  );
}

interface Handlers {
  onMove: (at: number | undefined) => void;
  onZoom: (since: number, until: number) => void;
  onReset: () => void;
}

function optionsOf(data: PlotData, element: HTMLElement, handlers: Handlers): UPlot.Options {
  const colour = (name: string) => getComputedStyle(element).getPropertyValue(name).trim();
  const axis = { stroke: colour('--soft'), font: '11px Geist, system-ui', grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false } };
  // Bars are drawn from the highest sum down, so that each covers what is above it.
  const order = drawOrder(data.series);
  const hasDurations = data.series.some((series) => series.duration);
  return {
    width: element.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: {
      sync: { key: SYNC },
      drag: { x: true, y: false, setScale: false },
      points: { size: 6 },
      y: false,
      bind: {
        dblclick: () => () => {
          handlers.onReset();
          return null;
        },
      },
    },
    scales: { x: { time: true }, y: { range: (_plot, _min, max) => [0, Math.max(1, max) * 1.08] }, duration: { range: (_plot, _min, max) => [0, Math.max(1, max) * 1.08] } },
    axes: [
      { ...axis, size: 28, grid: { ...axis.grid, dash: [3, 3] }, values: (_plot, ticks) => ticks.map((tick) => timeLabel(tick, data.times)) },
      { ...axis, side: RIGHT, size: 62, values: (_plot, ticks) => ticks.map((tick) => data.format(tick)) },
      ...(hasDurations ? [{ ...axis, scale: 'duration', side: LEFT, size: 56, grid: { show: false }, values: (_plot: UPlot, ticks: number[]) => ticks.map(formatDuration) }] : []),
    ],
    series: [{}, ...order.map((index) => seriesOptions(data.series[index], colour))],
    hooks: {
      setCursor: [(plot) => handlers.onMove(plot.cursor.idx ?? undefined)],
      setSelect: [
        (plot) => {
          const { left, width } = plot.select;
          if (width < 6) return;
          handlers.onZoom(plot.posToVal(left, 'x'), plot.posToVal(left + width, 'x'));
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        },
      ],
    },
  };
}

/** The clock time within two days; the date beyond. */
function timeLabel(time: number, times: readonly number[]): string {
  const length = (times.at(-1) ?? 0) - (times[0] ?? 0);
  return length <= SHOWN_AS_CLOCK_S ? formatClock(time) : formatMoment(time, time + SHOWN_AS_CLOCK_S);
}

function seriesOptions(series: PlotSeries | undefined, colour: (name: string) => string): UPlot.Series {
  if (!series) return {};
  const stroke = colour(series.colour);
  const shared = { label: series.label, stroke, scale: series.duration ? 'duration' : 'y', points: { show: false }, spanGaps: true };
  switch (series.kind) {
    case 'bar':
      return { ...shared, fill: stroke, width: 0, ...(UPlot.paths.bars && { paths: UPlot.paths.bars({ size: [0.7, 40] }) }) };
    case 'area':
      return { ...shared, fill: `color-mix(in srgb, ${stroke} 18%, transparent)`, width: 1.5, dash: series.dash };
    case 'line':
      return { ...shared, width: 1.5, dash: series.dash };
  }
}

function drawOrder(series: readonly PlotSeries[]): number[] {
  const bars = series.flatMap((one, index) => (one.kind === 'bar' ? [index] : [])).reverse();
  const others = series.flatMap((one, index) => (one.kind === 'bar' ? [] : [index]));
  return [...bars, ...others];
}

function drawn(series: readonly PlotSeries[]): (number | null)[][] {
  const values = stacked(series);
  return drawOrder(series).map((index) => values[index] ?? []);
}
