import type { ReactNode } from 'react';

import { settingsWords, words } from '../../words';
import styles from './settings.module.css';

interface SectionHeadProps {
  section: keyof typeof words.shell.sections;
  /** At the right end, such as a button. */
  actions?: ReactNode;
}

/** The title of a section, and in a sentence what it is about. */
export function SectionHead({ section, actions }: SectionHeadProps) {
  return (
    <div className={styles.head}>
      <div className="grow">
        <h2>{words.shell.sections[section]}</h2>
        <p className="soft">{settingsWords.sectionHints[section]}</p>
      </div>
      {actions}
    </div>
  );
}
