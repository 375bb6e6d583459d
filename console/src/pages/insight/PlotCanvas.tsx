import { useEffect, useMemo, useRef, useState, type KeyboardEvent } from 'react';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';

import { formatClock, formatExact } from '../../format/time';
import { usePreferences } from '../../shell/preferences';
import { Foreign } from '../../ui/Foreign';
import { useMedia } from '../../ui/media';
import { insightWords } from '../../words';
import { heights, type Plot, type PlotLine, type Steps } from './plot-data';
import { drawn, plotOptions } from './plot-options';
import styles from './insight.module.css';
import { Swatch } from './Swatch';
import { formatValue } from './values';

const HEIGHT = 168;
const TIP_WIDTH = 190;

interface PlotCanvasProps {
  plot: Plot;
  steps: Steps;
  onZoom: (since: number, until: number) => void;
  onReset: () => void;
}

/** A plot whose cursor all plots share. Drag or + zooms, a double click or Escape resets, the arrow keys move the cursor. */
export function PlotCanvas({ plot, steps, onZoom, onReset }: PlotCanvasProps) {
  const place = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot>(undefined);
  const [cursor, setCursor] = useState<{ index: number; left: number; width: number }>();
  const [isHere, setIsHere] = useState(false);
  const { begin, step, count } = steps;
  const { lines, unit } = plot;
  const data = useMemo(() => plotData(lines, { begin, step, count }), [lines, begin, step, count]);
  // The structure of a chart is fixed; new values alone are set.
  const structure = JSON.stringify([begin, step, count, lines.map(({ name, look, unit: own }) => [name, look, own])]);
  const latest = useRef({ lines, data, onZoom, onReset });
  useEffect(() => {
    latest.current = { lines, data, onZoom, onReset };
  });

  useEffect(() => {
    const element = place.current;
    if (!element) return undefined;
    const options = plotOptions(latest.current.lines, unit, { begin, step, count }, { width: element.clientWidth, height: HEIGHT }, {
      onCursor: (index, left, width) => setCursor(index === null ? undefined : { index, left, width }),
      onZoom: (since, until) => latest.current.onZoom(since, until),
      onReset: () => latest.current.onReset(),
    });
    const made = new uPlot(options, latest.current.data, element);
    chart.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      chart.current = undefined;
      setCursor(undefined);
    };
  }, [structure, unit, begin, step, count]);

  useEffect(() => chart.current?.setData(data), [data]);
  useRedraw(chart);

  function moveTo(index: number) {
    const made = chart.current;
    if (!made) return;
    const at = Math.min(Math.max(index, 0), count - 1);
    made.setCursor({ left: made.valToPos(timeOf(steps, at), 'x'), top: 1 });
  }
  function onKeyDown(event: KeyboardEvent) {
    const at = cursor?.index ?? count;
    const actions: Record<string, () => void> = {
      ArrowLeft: () => moveTo(at - 1),
      ArrowRight: () => moveTo(at + 1),
      Home: () => moveTo(0),
      End: () => moveTo(count - 1),
      '+': () => cursor && onZoom(...around(timeOf(steps, cursor.index), (step * count) / 4)),
      Escape: onReset,
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }
  const tip = cursor && isHere ? cursor : undefined;
  return (
    <div
      className={styles.plot}
      role="group"
      tabIndex={0}
      aria-label={insightWords.plotLabel(plot.title, plot.note)}
      onKeyDown={onKeyDown}
      onPointerEnter={() => setIsHere(true)}
      onPointerLeave={() => setIsHere(false)}
      onFocus={() => setIsHere(true)}
      onBlur={() => setIsHere(false)}
    >
      <div ref={place} className={styles.canvas} aria-hidden />
      {tip && <Tip plot={plot} steps={steps} {...tip} />}
    </div>
  );
}

function Tip({ plot, steps, index, left, width }: { plot: Plot; steps: Steps; index: number; left: number; width: number }) {
  const at = steps.begin + index * steps.step;
  const shown = plot.lines.filter(({ values, look }) => look !== 'bars' || (values[index] ?? 0) > 0);
  // Beside the cursor, on the side with more room.
  const x = left > width / 2 ? left - TIP_WIDTH - 12 : left + 12;
  return (
    <div className={styles.tip} style={{ transform: `translateX(${Math.round(Math.max(0, x))}px)`, width: TIP_WIDTH }} role="status">
      <b title={formatExact(at)}>{spanText(at, steps.step)}</b>
      {shown.map(({ name, ink, values, unit }) => (
        <div key={name} className={styles.tipLine}>
          <Swatch ink={ink} />
          <span className="cut">
            <Foreign text={name} limit={40} />
          </span>
          <span className="end num">{valueText(values[index], unit ?? plot.unit)}</span>
        </div>
      ))}
    </div>
  );
}

const DAY = new Intl.DateTimeFormat(undefined, { weekday: 'short', day: 'numeric', month: 'short' });

function spanText(at: number, step: number): string {
  return `${DAY.format(at * 1000)}, ${formatClock(at)} – ${formatClock(at + step)}`;
}

function valueText(value: number | null | undefined, unit: Plot['unit']): string {
  return value === null || value === undefined ? '–' : formatValue(value, unit);
}

function plotData(lines: readonly PlotLine[], steps: Steps): uPlot.AlignedData {
  const times = Array.from({ length: steps.count }, (_, index) => timeOf(steps, index));
  const tops = heights(lines);
  return [times, ...drawn(lines).map(({ index }) => [...(tops[index] ?? [])])];
}

/** A value stands in the middle of its step. */
function timeOf({ begin, step }: Steps, index: number): number {
  return begin + (index + 0.5) * step;
}

function around(at: number, half: number): [number, number] {
  return [at - half, at + half];
}

/** Draw again when the theme or the density of pixels changes. */
function useRedraw(chart: { current: uPlot | undefined }) {
  const { theme } = usePreferences();
  const isDark = useMedia('(prefers-color-scheme: dark)');
  useEffect(() => chart.current?.redraw(false), [chart, theme, isDark]);
}
