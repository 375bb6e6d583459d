import { useVirtualizer } from '@tanstack/react-virtual';
import { useEffect, useRef, type ReactNode } from 'react';

import styles from './List.module.css';

interface ListProps<Item> {
  items: readonly Item[];
  label: string;
  keyOf: (item: Item) => string;
  render: (item: Item, index: number) => ReactNode;
  rowHeight: number;
  /** What the list is of, such as its filters. The router keeps the scroll position for each, and takes it to no other. */
  scrollId?: string;
  /** Kept in view, such as the row that the keyboard is on. */
  activeIndex?: number;
  /** Called when the last row comes near, to fetch the next page. */
  onEnd?: () => void;
}

/** A list of which only the rows on the screen exist. Rows are as high as their content, `rowHeight` is the estimate. */
export function List<Item>({ items, label, keyOf, render, rowHeight, scrollId, activeIndex, onEnd }: ListProps<Item>) {
  const view = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: items.length,
    getScrollElement: () => view.current,
    estimateSize: () => rowHeight,
    getItemKey: (index) => {
      const item = items[index];
      return item === undefined ? index : keyOf(item);
    },
    overscan: 8,
  });
  const rows = virtual.getVirtualItems();
  const last = rows.at(-1)?.index ?? 0;
  useEffect(() => {
    if (items.length > 0 && last >= items.length - 10) onEnd?.();
  }, [last, items.length, onEnd]);
  useEffect(() => {
    if (activeIndex !== undefined && activeIndex >= 0) virtual.scrollToIndex(activeIndex, { align: 'auto' });
  }, [activeIndex, virtual]);
  return (
    <div ref={view} className={styles.view} tabIndex={0} data-scroll-restoration-id={scrollId && encodeURIComponent(scrollId)}>
      <ul className={styles.sizer} aria-label={label} style={{ height: virtual.getTotalSize() }}>
        {rows.map((row) => {
          const item = items[row.index];
          if (item === undefined) return null;
          return (
            <li
              key={row.key}
              ref={virtual.measureElement}
              data-index={row.index}
              aria-setsize={items.length}
              aria-posinset={row.index + 1}
              className={styles.row}
              style={{ transform: `translateY(${row.start}px)` }}
            >
              {render(item, row.index)}
            </li>
          );
        })}
      </ul>
    </div>
  );
}
