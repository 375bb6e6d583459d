import { useVirtualizer } from '@tanstack/react-virtual';
import { useMemo, useRef, useState } from 'react';

import { saveBlob } from '../api/artifacts';
import { Button } from '../ui/Button';
import { chipClasses } from '../ui/Chip';
import { classes } from '../ui/classes';
import { Checkbox } from '../ui/Field';
import { Foreign } from '../ui/Foreign';
import { DownloadIcon } from '../ui/icons';
import { isNumber } from '../schema/json';
import { viewWords } from '../words';
import { toCsv } from './csv';
import styles from './DataTable.module.css';
import { cellText, sortRows, type Sorting, type TableData } from './table-data';

const ROW_HEIGHT = 30;
const MOST_COLUMNS = 40;

/** A list of objects as a table that can be sorted and saved as CSV. Only the rows on the screen exist. */
export function DataTable({ data, name, height = 420 }: { data: TableData; name: string; height?: number }) {
  const [sorting, setSorting] = useState<Sorting>();
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const rows = useMemo(() => sortRows(data.rows, sorting), [data.rows, sorting]);
  const columns = data.columns.filter((column) => !hidden.has(column)).slice(0, MOST_COLUMNS);
  const view = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({ count: rows.length, getScrollElement: () => view.current, estimateSize: () => ROW_HEIGHT, overscan: 10 });
  const items = virtual.getVirtualItems();
  const before = items[0]?.start ?? 0;
  const after = virtual.getTotalSize() - (items.at(-1)?.end ?? 0);

  function sortBy(column: string) {
    setSorting((now) => (now?.column === column ? (now.descending ? undefined : { column, descending: true }) : { column, descending: false }));
  }
  function save() {
    const csv = toCsv(columns, rows.map((row) => columns.map((column) => row[column])));
    saveBlob(new Blob([csv], { type: 'text/csv' }), `${name}.csv`);
  }
  return (
    <div className={styles.place}>
      <div className={styles.tools}>
        <span className="faint num">{viewWords.rows(rows.length)}</span>
        <ColumnChoice columns={data.columns} hidden={hidden} onChange={setHidden} />
        <Button className="end" icon={DownloadIcon} onClick={save}>
          {viewWords.csv}
        </Button>
      </div>
      <div ref={view} className={styles.view} style={{ maxHeight: height }} tabIndex={0} role="region" aria-label={viewWords.table}>
        <table className={styles.table} aria-rowcount={rows.length}>
          <thead>
            <tr>
              {columns.map((column) => (
                <th key={column} scope="col" aria-sort={sorting?.column === column ? (sorting.descending ? 'descending' : 'ascending') : undefined}>
                  <button type="button" onClick={() => sortBy(column)}>
                    <Foreign text={column} limit={60} />
                    {sorting?.column === column && <span aria-hidden>{sorting.descending ? ' ↓' : ' ↑'}</span>}
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {before > 0 && <tr aria-hidden style={{ height: before }} />}
            {items.map((item) => (
              <tr key={item.index} aria-rowindex={item.index + 1} style={{ height: ROW_HEIGHT }}>
                {columns.map((column) => {
                  const cell = rows[item.index]?.[column];
                  return (
                    <td key={column} className={classes(isNumber(cell) && styles.number)}>
                      <Foreign text={cellText(cell)} limit={80} />
                    </td>
                  );
                })}
              </tr>
            ))}
            {after > 0 && <tr aria-hidden style={{ height: after }} />}
          </tbody>
        </table>
      </div>
    </div>
  );
}

function ColumnChoice({ columns, hidden, onChange }: { columns: string[]; hidden: ReadonlySet<string>; onChange: (hidden: ReadonlySet<string>) => void }) {
  const toggle = (column: string) => {
    const next = new Set(hidden);
    if (!next.delete(column)) next.add(column);
    onChange(next);
  };
  return (
    <details className={styles.columns}>
      <summary className={chipClasses}>{viewWords.columns}</summary>
      <div className={styles.choice}>
        {columns.map((column) => (
          <Checkbox key={column} label={<Foreign text={column} limit={60} />} checked={!hidden.has(column)} onChange={() => toggle(column)} />
        ))}
      </div>
    </details>
  );
}
