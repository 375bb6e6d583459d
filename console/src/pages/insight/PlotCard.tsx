import { saveBlob } from '../../api/artifacts';
import { formatShortWeekday, formatMoment } from '../../format/time';
import { useNow } from '../../format/clock';
import { Button } from '../../ui/Button';
import { Foreign } from '../../ui/Foreign';
import { DownloadIcon } from '../../ui/icons';
import { Table } from '../../ui/Table';
import { toCsv } from '../../views/csv';
import { insightWords } from '../../words';
import { PlotCanvas } from './PlotCanvas';
import { plotRows, type Plot, type Steps } from './plot-data';
import styles from './insight.module.css';
import { Swatch } from './Swatch';
import { formatValue } from './values';

interface PlotCardProps {
  plot: Plot;
  steps: Steps;
  /** Said where there is nothing to draw. */
  empty: string;
  asTable: boolean;
  /** The name of the CSV file. */
  name: string;
  onZoom: (since: number, until: number) => void;
  onReset: () => void;
}

/** A plot with its title, its figure for the whole window, and its legend; or the same values as a table. */
export function PlotCard({ plot, steps, empty, asTable, name, onZoom, onReset }: PlotCardProps) {
  const isEmpty = plot.lines.length === 0;
  return (
    <section className={styles.card} aria-label={plot.title}>
      <header className={styles.head}>
        <h2>{plot.title}</h2>
        <span className="soft">{plot.note}</span>
        {asTable && !isEmpty ? <SaveButton plot={plot} steps={steps} name={name} /> : <Legend plot={plot} />}
      </header>
      {isEmpty && <p className={styles.none}>{empty}</p>}
      {!isEmpty && asTable && <PlotTable plot={plot} steps={steps} />}
      {!isEmpty && !asTable && <PlotCanvas plot={plot} steps={steps} onZoom={onZoom} onReset={onReset} />}
    </section>
  );
}

function Legend({ plot }: { plot: Plot }) {
  return (
    <span className={styles.legend}>
      {plot.lines.map(({ name, ink }) => (
        <span key={name}>
          <Swatch ink={ink} />
          <Foreign text={name} limit={40} />
        </span>
      ))}
    </span>
  );
}

function SaveButton({ plot, steps, name }: { plot: Plot; steps: Steps; name: string }) {
  function save() {
    const csv = toCsv([insightWords.step, ...plot.lines.map((line) => line.name)], plotRows(steps, plot.lines));
    saveBlob(new Blob([csv], { type: 'text/csv' }), `${name}.csv`);
  }
  return (
    <Button className="end" icon={DownloadIcon} onClick={save}>
      {insightWords.csv}
    </Button>
  );
}

/** The steps, the newest first. */
function PlotTable({ plot, steps }: { plot: Plot; steps: Steps }) {
  const now = useNow(60);
  const indexes = Array.from({ length: steps.count }, (_, index) => String(steps.count - 1 - index));
  return (
    <div className={styles.rows} tabIndex={0} role="region" aria-label={plot.title}>
      <Table
        label={plot.title}
        rows={indexes}
        keyOf={(index) => index}
        columns={[
          { key: 'begin', title: insightWords.step, cell: (index) => <span className="num">{beginText(steps, Number(index), now)}</span> },
          ...plot.lines.map(({ name, values, unit }) => ({
            key: name,
            title: <Foreign text={name} limit={40} />,
            right: true,
            cell: (index: string) => {
              const value = values[Number(index)];
              return value === null || value === undefined ? <span className="faint">–</span> : formatValue(value, unit ?? plot.unit);
            },
          })),
        ]}
      />
    </div>
  );
}

const WEEK_S = 604_800;

/** The clock time today, the weekday and time within a week, the date and time beyond. */
function beginText({ begin, step }: Steps, index: number, now: number): string {
  const at = begin + index * step;
  const time = formatShortWeekday(at);
  return now - at > WEEK_S ? `${formatMoment(at, now)}, ${time}` : time;
}
