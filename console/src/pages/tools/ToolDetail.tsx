import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';

import { toolQuery } from '../../api/queries';
import { PageTitle } from '../../shell/Page';
import { useTitle } from '../../shell/title';
import { Chip } from '../../ui/Chip';
import { Glyph } from '../../ui/Glyph';
import { BackIcon } from '../../ui/icons';
import { useDesktop } from '../../ui/media';
import { Failure, Skeleton } from '../../ui/States';
import { TabList, TabPanel, Tabs } from '../../ui/Tabs';
import { ToolName } from '../../ui/ToolName';
import type { Tool } from '../../api/types';
import { toolWords, words } from '../../words';
import { CallsTab } from './CallsTab';
import { effectLook, verdictLook } from './effects';
import { SafetyTab } from './SafetyTab';
import { SchemaTab } from './SchemaTab';
import styles from './Tools.module.css';
import { TryIt } from './TryIt';

const TABS = ['try', 'schema', 'safety', 'calls'] as const;
type Tab = (typeof TABS)[number];

/** One tool: try it, its schema, what is known of its safety, and its calls. */
export function ToolDetail({ name, tab }: { name: string; tab: string }) {
  const navigate = useNavigate();
  const desktop = useDesktop();
  const search = useSearch({ strict: false });
  const query = useQuery(toolQuery(name));
  const tool = query.data;
  const current = TABS.find((one) => one === tab) ?? 'try';
  const items = TABS.map((value) => ({ value, label: toolWords.tabs[value], ...(value === 'calls' && tool?.stats?.count ? { count: tool.stats.count } : {}) }));
  const change = (next: Tab) => void navigate({ to: '.', search: (old) => ({ ...old, tab: next === 'try' ? undefined : next }), replace: true });
  useTitle(name);
  return (
    <section className={styles.detail} aria-label={name}>
      <Tabs value={current} onChange={change} className={styles.tabs}>
        <header className={styles.detailTop}>
          {!desktop && (
            <Link to="/tools" search={{ ...search, tab: undefined }} className={styles.back} aria-label={words.shell.pages.tools}>
              <Glyph icon={BackIcon} />
            </Link>
          )}
          {desktop ? <ToolHeading name={name} /> : <PageHeading name={name} />}
          {tool && <Chips tool={tool} />}
          <span className={styles.tabList}>
            <TabList items={items} label={name} />
          </span>
        </header>
        {query.isPending && <Skeleton rows={8} height={56} />}
        {query.error && <Failure error={query.error} what={`tool ${name}`} onRetry={() => void query.refetch()} />}
        {tool && (
          <>
            <TabPanel value="try" className={styles.panel}>
              <TryIt tool={tool} />
            </TabPanel>
            <TabPanel value="schema" className={styles.panel} scrolls>
              <SchemaTab tool={tool} />
            </TabPanel>
            <TabPanel value="safety" className={styles.panel} scrolls>
              <SafetyTab tool={tool} />
            </TabPanel>
            <TabPanel value="calls" className={styles.panel} scrolls>
              <CallsTab tool={tool} />
            </TabPanel>
          </>
        )}
      </Tabs>
    </section>
  );
}

/** Beside the list, whose title is the heading of the page. */
function ToolHeading({ name }: { name: string }) {
  return (
    <h2 className={styles.name}>
      <ToolName name={name} large />
    </h2>
  );
}

/** Alone on the screen, below the heading of the page, which is not shown. */
function PageHeading({ name }: { name: string }) {
  return (
    <>
      <span className="visually-hidden">
        <PageTitle title={words.shell.pages.tools} />
      </span>
      <ToolHeading name={name} />
    </>
  );
}

function Chips({ tool }: { tool: Tool }) {
  const effect = effectLook({ side_effects: tool.side_effects, destructive: tool.safety.destructive });
  const verdict = verdictLook(tool.verdict.action);
  const replay = toolWords.replayChips[tool.replay];
  return (
    <span className={styles.chips}>
      <Chip tone={effect.tone} icon={effect.icon}>
        {effect.word}
      </Chip>
      {replay !== '' && <Chip tone="line">{replay}</Chip>}
      {tool.verdict.action !== 'allow' && (
        <Chip tone={verdict.tone} icon={verdict.icon}>
          {verdict.word}
        </Chip>
      )}
      {tool.held && <Chip tone="wait">{toolWords.held}</Chip>}
      {tool.deprecated && <Chip tone="line">{toolWords.deprecated}</Chip>}
    </span>
  );
}
