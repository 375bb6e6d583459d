import { saveBlob } from '../../api/artifacts';
import { formatDuration, isoTime, formatExact } from '../../format/time';
import { Button } from '../../ui/Button';
import { Foreign } from '../../ui/Foreign';
import { DownloadIcon } from '../../ui/icons';
import { toCsv } from '../../views/csv';
import { insightWords } from '../../words-insight';
import { viewWords } from '../../words-views';
import styles from './Insight.module.css';
import type { PlotData } from './plots';

/** A plot as a table, with the values that it draws. */
export function PlotTable({ data }: { data: PlotData }) {
  function save() {
    const rows = data.times.map((time, index) => [isoTime(time), ...data.series.map((series) => series.values[index] ?? null)]);
    saveBlob(new Blob([toCsv([insightWords.time, ...data.series.map((series) => series.label)], rows)], { type: 'text/csv' }), `${data.id}.csv`);
  }
  return (
    <section className={styles.plot}>
      <div className={styles.caption}>
        <h2>{data.title}</h2>
        <span className="soft">{data.note}</span>
        <Button className="end" icon={DownloadIcon} onClick={save}>
          {viewWords.csv}
        </Button>
      </div>
      <div className={styles.tableView} tabIndex={0} role="region" aria-label={data.title}>
        <table className={styles.table}>
          <thead>
            <tr>
              <th scope="col">{insightWords.time}</th>
              {data.series.map((series) => (
                <th key={series.label} scope="col">
                  <Foreign text={series.label} limit={40} />
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {data.times.map((time, index) => (
              <tr key={time}>
                <td>
                  <time dateTime={isoTime(time)} title={formatExact(time)}>
                    {isoTime(time).slice(0, 16).replace('T', ' ')}
                  </time>
                </td>
                {data.series.map((series) => {
                  const value = series.values[index];
                  return <td key={series.label}>{value == null ? '–' : series.duration ? formatDuration(value) : data.format(value)}</td>;
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
