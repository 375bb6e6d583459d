import { useEffect, useRef, type ReactNode } from 'react';

import { classes } from '../ui/classes';
import { Glyph } from '../ui/Glyph';
import { NextIcon } from '../ui/icons';
import styles from './Page.module.css';
import { useTitle } from './title';

interface PageProps {
  title: string;
  /** Before the title: the page that it belongs to. */
  crumb?: ReactNode;
  /** Beside the title, in faint. */
  note?: ReactNode;
  /** At the right end of the header. */
  actions?: ReactNode;
  padded?: boolean;
  children: ReactNode;
}

/** A page with its header. Its heading takes the focus when the route changes. */
export function Page({ title, crumb, note, actions, padded, children }: PageProps) {
  return (
    <div className={styles.page}>
      <header className={styles.top}>
        {crumb && (
          <span className="row soft">
            {crumb}
            <Glyph icon={NextIcon} size={14} className="faint" />
          </span>
        )}
        <PageTitle title={title} />
        {note && <span className="faint cut">{note}</span>}
        {actions && <span className="end row">{actions}</span>}
      </header>
      <div className={classes(styles.body, padded && styles.padded)}>{children}</div>
    </div>
  );
}

/** The `h1` of a page, for pages with a header of their own. */
export function PageTitle({ title }: { title: string }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useTitle(title);
  useEffect(() => {
    heading.current?.focus({ preventScroll: true });
  }, []);
  return (
    <h1 ref={heading} tabIndex={-1}>
      {title}
    </h1>
  );
}
