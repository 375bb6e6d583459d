import { useVirtualizer } from '@tanstack/react-virtual';
import { useMemo, useRef, useState } from 'react';

import { Button } from '../ui/Button';
import { classes } from '../ui/classes';
import { copyText } from '../ui/copy-text';
import { Input } from '../ui/Field';
import { Foreign } from '../ui/Foreign';
import { Glyph } from '../ui/Glyph';
import { CopyIcon, MoreIcon, NextIcon } from '../ui/icons';
import { Menu, MenuItem } from '../ui/Menu';
import { ExactNumber, stringify, type Json } from '../schema/json';
import { viewWords, words } from '../words';
import styles from './JsonTree.module.css';
import { isContainer, shortOf, spellPath, treeRows, type Opened, type TreeRow } from './tree';

const ROW_HEIGHT = 22;
const SEARCH_ABOVE = 12;

interface JsonTreeProps {
  value: Json;
  label?: string;
  /** At most so many pixels high; the rest is scrolled. */
  height?: number;
}

/** JSON as a tree, of which only the rows on the screen exist; with a search, and copies of paths and values. */
export function JsonTree({ value, label = viewWords.tree, height = 420 }: JsonTreeProps) {
  const [opened, setOpened] = useState<Opened>(new Map());
  const [search, setSearch] = useState('');
  const rows = useMemo(() => treeRows(value, opened, search), [value, opened, search]);
  const view = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => view.current,
    estimateSize: () => ROW_HEIGHT,
    overscan: 12,
  });
  const toggle = (row: TreeRow) => setOpened((known) => new Map(known).set(row.pointer, !row.open));
  return (
    <div className={styles.tree}>
      {(search !== '' || rows.length > SEARCH_ABOVE) && (
        <div className={styles.search}>
          <Input
            type="search"
            value={search}
            aria-label={viewWords.search}
            placeholder={viewWords.search}
            onChange={(event) => setSearch(event.target.value)}
          />
          {search !== '' && <span className="faint num">{viewWords.found(rows.filter((row) => row.found).length)}</span>}
        </div>
      )}
      <div ref={view} className={styles.view} style={{ maxHeight: height }} role="tree" aria-label={label}>
        <div className={styles.sizer} style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((item) => {
            const row = rows[item.index];
            return (
              row && (
                <div
                  key={row.pointer}
                  ref={virtual.measureElement}
                  data-index={item.index}
                  className={styles.place}
                  style={{ transform: `translateY(${item.start}px)` }}
                >
                  <Row row={row} onToggle={() => toggle(row)} />
                </div>
              )
            );
          })}
        </div>
      </div>
    </div>
  );
}

function Row({ row, onToggle }: { row: TreeRow; onToggle: () => void }) {
  const openable = row.children > 0;
  return (
    <div
      role="treeitem"
      aria-level={row.depth + 1}
      aria-expanded={openable ? row.open : undefined}
      className={classes(styles.row, row.found && styles.found)}
      style={{ paddingLeft: 6 + row.depth * 16 }}
    >
      {openable ? (
        <button type="button" className={styles.toggle} aria-label={spellPath(row.path)} aria-expanded={row.open} onClick={onToggle}>
          <Glyph icon={NextIcon} size={12} className={classes(row.open && styles.turned)} />
        </button>
      ) : (
        <span className={styles.toggle} />
      )}
      {row.name !== undefined && (
        <span className={styles.name}>
          <Foreign text={String(row.name)} limit={120} />
        </span>
      )}
      <Value value={row.value} open={row.open} />
      <CopyMenu row={row} />
    </div>
  );
}

function Value({ value, open }: { value: Json; open: boolean }) {
  if (isContainer(value)) {
    return (
      <span className="faint cut">
        {open ? (Array.isArray(value) ? `[ ${value.length} ]` : `{ ${Object.keys(value).length} }`) : <Foreign text={shortOf(value)} limit={120} />}
      </span>
    );
  }
  if (typeof value === 'string') {
    return (
      <span className={styles.string}>
        &quot;
        <Foreign text={value} block limit={1000} className={styles.inline} />
        &quot;
      </span>
    );
  }
  const isNumber = typeof value === 'number' || value instanceof ExactNumber;
  return <span className={isNumber ? styles.number : styles.word}>{stringify(value)}</span>;
}

function CopyMenu({ row }: { row: TreeRow }) {
  const text = () => (typeof row.value === 'string' ? row.value : stringify(row.value, 2));
  return (
    <span className={styles.copy}>
      <Menu
        trigger={
          <Button look="ghost" className={styles.more} aria-label={`${words.copy}: ${spellPath(row.path)}`}>
            <Glyph icon={MoreIcon} size={12} />
          </Button>
        }
      >
        <MenuItem icon={CopyIcon} onSelect={() => void copyText(text())}>
          {viewWords.copyValue}
        </MenuItem>
        <MenuItem icon={CopyIcon} onSelect={() => void copyText(spellPath(row.path))}>
          {viewWords.copyPath}
        </MenuItem>
      </Menu>
    </span>
  );
}
