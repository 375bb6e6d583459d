import { formatCount } from '../format/number';
import type { PreviewData } from '../types';
import { Foreign } from '../ui/Foreign';
import { words } from '../words';
import styles from './previews.module.css';

const MOST_ROWS = 50;

/** The rows that a call would write or delete: the first fifty, and of how many. */
export function TablePreview({ preview }: { preview: PreviewData }) {
  const { columns = [], rows = [], total = rows.length } = preview;
  return (
    <>
      <div className={styles.table} tabIndex={0} role="region" aria-label={words.cards.preview}>
        <table>
          <thead>
            <tr>
              {columns.map((column) => (
                <th key={column} scope="col">
                  <Foreign text={column} />
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, MOST_ROWS).map((row, index) => (
              <tr key={index}>
                {row.map((cell, column) => (
                  <td key={column}>
                    <Foreign text={typeof cell === 'string' ? cell : JSON.stringify(cell)} />
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {total > MOST_ROWS && <p className={styles.note}>{words.cards.rowsOf(MOST_ROWS, formatCount(total))}</p>}
    </>
  );
}
