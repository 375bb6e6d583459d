/** The pages of the sidebar, in their order. A page whose API is missing is not here. */

import {
  AccountIcon,
  ApprovalsIcon,
  AuditIcon,
  InsightIcon,
  NowIcon,
  RunIcon,
  SourceIcon,
  ToolIcon,
  type Icon,
} from '../ui/icons';
import { words } from '../words';

export type PagePath = '/' | '/approvals' | '/runs' | '/tools' | '/sources' | '/accounts' | '/insight' | '/audit';

export interface NavigationEntry {
  to: PagePath;
  label: string;
  icon: Icon;
  /** The second key after `G`. */
  key: string;
}

const PAGES = words.shell.pages;

export const NAVIGATION: readonly (readonly NavigationEntry[])[] = [
  [
    { to: '/', label: PAGES.now, icon: NowIcon, key: 'n' },
    { to: '/approvals', label: PAGES.approvals, icon: ApprovalsIcon, key: 'a' },
    { to: '/runs', label: PAGES.runs, icon: RunIcon, key: 'r' },
  ],
  [
    { to: '/tools', label: PAGES.tools, icon: ToolIcon, key: 't' },
    { to: '/sources', label: PAGES.sources, icon: SourceIcon, key: 's' },
    { to: '/accounts', label: PAGES.accounts, icon: AccountIcon, key: 'c' },
  ],
  [
    { to: '/insight', label: PAGES.insight, icon: InsightIcon, key: 'i' },
    { to: '/audit', label: PAGES.audit, icon: AuditIcon, key: 'u' },
  ],
];
