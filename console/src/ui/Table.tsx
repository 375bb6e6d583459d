import type { ReactNode } from 'react';

import { classes } from './classes';
import styles from './Table.module.css';

export interface Column<Row> {
  key: string;
  title: ReactNode;
  cell: (row: Row) => ReactNode;
  /** Numbers and durations. */
  right?: boolean;
  /** Left out on a phone. */
  wide?: boolean;
  /** Left out on a phone and on a tablet. */
  widest?: boolean;
}

interface TableProps<Row> {
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  keyOf: (row: Row) => string;
  label: string;
  onOpen?: (row: Row) => void;
  selected?: string;
}

/** A table of some rows; a long list is a `List`. A row that opens something has a link or a button in its first cell. */
export function Table<Row>({ columns, rows, keyOf, label, onOpen, selected }: TableProps<Row>) {
  const cellClass = (column: Column<Row>) => classes(column.right && styles.right, column.wide && styles.narrow, column.widest && styles.narrowest);
  return (
    <div className={styles.view}>
      <table className={styles.table} aria-label={label}>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.key} scope="col" className={cellClass(column)}>
                {column.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr
              key={keyOf(row)}
              className={classes(onOpen && styles.row, keyOf(row) === selected && styles.on)}
              onClick={onOpen && (() => onOpen(row))}
            >
              {columns.map((column) => (
                <td key={column.key} className={cellClass(column)}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
