import type { ReactNode } from 'react';

import styles from './now.module.css';

/** A part of the page with its heading and how many it has. */
export function Section({
  title,
  count,
  action,
  children,
}: {
  title: string;
  count?: number;
  action?: ReactNode;
  children: ReactNode;
}) {
  return (
    <section>
      <h2 className={styles.heading}>
        {title}
        {count !== undefined && count > 0 && <span className={styles.count}>{count.toLocaleString()}</span>}
        {action && <span className="end t12 soft medium">{action}</span>}
      </h2>
      {children}
    </section>
  );
}
