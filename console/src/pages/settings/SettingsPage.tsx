import { Link, useParams } from '@tanstack/react-router';
import type { ComponentType } from 'react';

import { Page } from '../../shell/Page';
import { Empty } from '../../ui/States';
import { words } from '../../words';
import { settingsWords } from '../../words-settings';
import { Appearance } from './Appearance';
import styles from './settings.module.css';

const SECTIONS = { appearance: Appearance } satisfies Record<string, ComponentType>;
const ORDER = Object.keys(SECTIONS) as (keyof typeof SECTIONS)[];

/** One section of the settings, beside the list of all. */
export default function SettingsPage() {
  const { section } = useParams({ from: '/settings/$section' });
  const Section = (SECTIONS as Record<string, ComponentType | undefined>)[section];
  return (
    <Page title={words.shell.pages.settings}>
      <div className={styles.split}>
        <nav className={styles.nav} aria-label={settingsWords.label}>
          {ORDER.map((name) => (
            <Link key={name} to="/settings/$section" params={{ section: name }} className={styles.entry}>
              {settingsWords.sections[name]}
            </Link>
          ))}
        </nav>
        <div className={styles.section}>{Section ? <Section /> : <Empty title={words.noSuchPage} />}</div>
      </div>
    </Page>
  );
}
