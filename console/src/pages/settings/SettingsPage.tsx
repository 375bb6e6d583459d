import { Link, useParams } from '@tanstack/react-router';
import { useEffect, useRef, type ComponentType } from 'react';

import { Page } from '../../shell/Page';
import { Empty } from '../../ui/States';
import { words } from '../../words';
import { About } from './About';
import { Appearance } from './Appearance';
import { Keys } from './Keys';
import { Policy } from './Policy';
import { Sessions } from './Sessions';
import styles from './settings.module.css';
import { Webhooks } from './Webhooks';

type SectionName = keyof typeof words.shell.sections;

const SECTIONS: Record<SectionName, ComponentType> = {
  appearance: Appearance,
  keys: Keys,
  policy: Policy,
  sessions: Sessions,
  webhooks: Webhooks,
  about: About,
};

function isSection(name: string): name is SectionName {
  return name in SECTIONS;
}

/** Settings of this browser, and of the gateway as far as they can be seen and changed here. */
export default function SettingsPage() {
  const { section } = useParams({ from: '/settings/$section' });
  const nav = useRef<HTMLElement>(null);
  useEffect(() => {
    // On a phone the sections are a row that is longer than the screen.
    nav.current?.querySelector('[aria-current="page"]')?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  }, [section]);
  const Shown = isSection(section) ? SECTIONS[section] : undefined;
  return (
    <Page title={words.shell.pages.settings} padded>
      <div className={styles.layout}>
        <nav ref={nav} className={styles.nav} aria-label={words.shell.pages.settings}>
          {Object.entries(words.shell.sections).map(([name, label]) => (
            <Link key={name} to="/settings/$section" params={{ section: name }}>
              {label}
            </Link>
          ))}
        </nav>
        <div className={styles.content}>{Shown ? <Shown /> : <Empty title={words.noSuchPage} />}</div>
      </div>
    </Page>
  );
}
