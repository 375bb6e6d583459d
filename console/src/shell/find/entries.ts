/** What the search finds: pages, ids, and what is in the cache. Tools come from the gateway. */

import type { Card, Run, Source } from '../../api/types';
import { lookOf } from '../../cards/kinds';
import { AgainIcon, ApprovalsIcon, RunIcon, SettingsIcon, SourceIcon, ToolIcon, type Icon } from '../../ui/icons';
import { runWords, words } from '../../words';
import { NAVIGATION } from '../navigation';

export interface Entry {
  /** The path that it opens, which is also its identity. */
  path: string;
  label: string;
  note?: string;
  icon: Icon;
  isTool?: boolean;
}

export interface EntryGroup {
  title: string;
  entries: Entry[];
}

const MOST = 6;
const SECTIONS = Object.entries(words.shell.sections);

export const PAGES: readonly Entry[] = [
  ...NAVIGATION.flat().map(({ to, label, icon }) => ({ path: to, label, icon })),
  ...SECTIONS.map(([section, label]) => ({
    path: `/settings/${section}`,
    label: `${words.shell.settings}: ${label}`,
    icon: SettingsIcon,
  })),
];

interface Known {
  cards: readonly Card[];
  runs: readonly Run[];
  sources: readonly Source[];
}

/** The groups for a text; without one, the pages. */
export function findEntries(text: string, { cards, runs, sources }: Known): EntryGroup[] {
  const query = text.trim().toLowerCase();
  const fits = (...values: string[]) => values.some((value) => value.toLowerCase().includes(query));
  const groups: EntryGroup[] = [
    { title: words.find.ids, entries: idEntries(text.trim()) },
    { title: words.find.pages, entries: PAGES.filter((page) => fits(page.label)) },
  ];
  if (query === '') return groups.filter((group) => group.entries.length > 0);
  groups.push(
    { title: words.shell.pages.approvals, entries: cards.filter((card) => fits(card.tool_name, card.id, card.asked_by)).map(cardEntry) },
    { title: words.shell.pages.runs, entries: runs.filter((run) => fits(run.tool_name, run.run_id)).map(runEntry) },
    { title: words.shell.pages.sources, entries: sources.filter((source) => fits(source.name)).map(sourceEntry) },
  );
  return groups
    .map((group) => ({ ...group, entries: group.entries.slice(0, MOST) }))
    .filter((group) => group.entries.length > 0);
}

/** Text of the shape of an id goes straight there. */
function idEntries(text: string): Entry[] {
  if (/^run_[\w-]{3,}$/.test(text)) return [{ path: `/runs/${text}`, label: text, icon: RunIcon }];
  if (/^ask_[\w-]{3,}$/.test(text)) return [{ path: `/approvals/${text}`, label: text, icon: ApprovalsIcon }];
  return [];
}

function cardEntry(card: Card): Entry {
  return { path: `/approvals/${card.id}`, label: card.tool_name, note: card.asked_by, icon: lookOf(card).icon, isTool: true };
}

function runEntry(run: Run): Entry {
  return { path: `/runs/${run.run_id}`, label: run.tool_name, note: runWords.statuses[run.status] ?? run.status, icon: RunIcon, isTool: true };
}

function sourceEntry(source: Source): Entry {
  return { path: `/sources/${encodeURIComponent(source.name)}`, label: source.name, note: source.state, icon: SourceIcon };
}

export function toolEntry(tool: { name: string; description: string }): Entry {
  return {
    path: `/tools/${encodeURIComponent(tool.name)}`,
    label: tool.name,
    note: tool.description,
    icon: ToolIcon,
    isTool: true,
  };
}

// ---------------------------------------------------------------- what was opened last

const KEY = 'toolpost.found';
const KEPT = 5;

type Kept = Pick<Entry, 'path' | 'label' | 'isTool'>;

export function lastFound(): Entry[] {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEY) ?? '[]') as Kept[];
    return kept.map((entry) => ({ ...entry, icon: AgainIcon }));
  } catch {
    return [];
  }
}

export function rememberFound({ path, label, isTool }: Entry): void {
  const others = lastFound().filter((entry) => entry.path !== path);
  const kept: Kept[] = [{ path, label, isTool }, ...others].slice(0, KEPT);
  sessionStorage.setItem(KEY, JSON.stringify(kept.map((one) => ({ path: one.path, label: one.label, isTool: one.isTool }))));
}
