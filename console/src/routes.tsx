/** All routes of the console. Each page is a chunk of its own; its filters are in the address. */

import { createRootRoute, createRoute, createRouter, redirect } from '@tanstack/react-router';

import { BASE_PATH } from './api/address';
import { given, json, number, oneOf, text, texts } from './search-params';
import { BrokenPage } from './shell/BrokenPage';
import { Root } from './shell/Root';
import { NoSuchPage } from './shell/NoSuchPage';
import { lazyPart } from './ui/lazy-part';

const root = createRootRoute({ component: Root, notFoundComponent: NoSuchPage, errorComponent: BrokenPage });

// ---------------------------------------------------------------- Now

const now = createRoute({
  getParentRoute: () => root,
  path: '/',
  validateSearch: (raw: Record<string, unknown>) => given({ window: oneOf(raw, 'window', ['1h', '24h']) }),
  component: lazyPart(() => import('./pages/now/NowPage')),
});

// ---------------------------------------------------------------- Approvals

const approvalsSearch = (raw: Record<string, unknown>) =>
  given({
    status: oneOf(raw, 'status', ['answered', 'expired']),
    mine: oneOf(raw, 'mine', ['no']),
    ...texts(raw, 'tool', 'by'),
    kind: oneOf(raw, 'kind', ['approval', 'input', 'consent', 'unknown', 'restart']),
  });

const approvals = createRoute({
  getParentRoute: () => root,
  path: 'approvals',
  validateSearch: approvalsSearch,
  component: lazyPart(() => import('./pages/approvals/ApprovalsPage')),
});

const approval = createRoute({
  getParentRoute: () => root,
  path: 'approvals/$id',
  validateSearch: approvalsSearch,
  component: lazyPart(() => import('./pages/approvals/ApprovalsPage')),
});

// ---------------------------------------------------------------- Runs

const runs = createRoute({
  getParentRoute: () => root,
  path: 'runs',
  validateSearch: (raw: Record<string, unknown>) =>
    given({
      ...texts(raw, 'status', 'tool', 'source', 'user', 'q'),
      since: number(raw, 'since'),
      until: number(raw, 'until'),
    }),
  component: lazyPart(() => import('./pages/runs/RunsPage')),
});

const run = createRoute({
  getParentRoute: () => root,
  path: 'runs/$id',
  validateSearch: (raw: Record<string, unknown>) => texts(raw, 'call', 'tab'),
  component: lazyPart(() => import('./pages/runs/RunPage')),
});

// ---------------------------------------------------------------- Tools

const toolsSearch = (raw: Record<string, unknown>) => texts(raw, 'q', 'source', 'tag', 'effect', 'verdict', 'tab');

const tools = createRoute({
  getParentRoute: () => root,
  path: 'tools',
  validateSearch: toolsSearch,
  component: lazyPart(() => import('./pages/tools/ToolsPage')),
});

const tool = createRoute({
  getParentRoute: () => root,
  path: 'tools/$name',
  validateSearch: toolsSearch,
  component: lazyPart(() => import('./pages/tools/ToolsPage')),
});

// ---------------------------------------------------------------- Sources

const sourcesSearch = (raw: Record<string, unknown>) => texts(raw, 'state', 'what');

const sources = createRoute({
  getParentRoute: () => root,
  path: 'sources',
  validateSearch: sourcesSearch,
  component: lazyPart(() => import('./pages/sources/SourcesPage')),
});

const addSource = createRoute({
  getParentRoute: () => root,
  path: 'sources/add',
  validateSearch: sourcesSearch,
  component: lazyPart(() => import('./pages/sources/SourcesPage')),
});

const source = createRoute({
  getParentRoute: () => root,
  path: 'sources/$name',
  validateSearch: sourcesSearch,
  component: lazyPart(() => import('./pages/sources/SourcePage')),
});

// ---------------------------------------------------------------- Accounts, Insight, Audit

const accounts = createRoute({
  getParentRoute: () => root,
  path: 'accounts',
  validateSearch: (raw: Record<string, unknown>) => texts(raw, 'connected', 'for'),
  component: lazyPart(() => import('./pages/accounts/AccountsPage')),
});

const insight = createRoute({
  getParentRoute: () => root,
  path: 'insight',
  validateSearch: (raw: Record<string, unknown>) =>
    given({
      range: oneOf(raw, 'range', ['1h', '24h', '7d', '30d']),
      by: oneOf(raw, 'by', ['tool', 'source', 'user', 'code']),
      view: oneOf(raw, 'view', ['table']),
      ...texts(raw, 'source', 'tool'),
      since: number(raw, 'since'),
      until: number(raw, 'until'),
    }),
  component: lazyPart(() => import('./pages/insight/InsightPage')),
});

const audit = createRoute({
  getParentRoute: () => root,
  path: 'audit',
  validateSearch: (raw: Record<string, unknown>) =>
    given({
      ...texts(raw, 'type', 'tool', 'user', 'run'),
      since: number(raw, 'since'),
      until: number(raw, 'until'),
      event: number(raw, 'event'),
    }),
  component: lazyPart(() => import('./pages/audit/AuditPage')),
});

// ---------------------------------------------------------------- Settings

const settings = createRoute({
  getParentRoute: () => root,
  path: 'settings',
  beforeLoad: () => redirect({ to: '/settings/$section', params: { section: 'appearance' }, throw: true }),
});

const settingsSection = createRoute({
  getParentRoute: () => root,
  path: 'settings/$section',
  validateSearch: (raw: Record<string, unknown>) => given({ tool: text(raw, 'tool'), args: json(raw, 'args') }),
  component: lazyPart(() => import('./pages/settings/SettingsPage')),
});

// ---------------------------------------------------------------- sign-in

const signIn = createRoute({
  getParentRoute: () => root,
  path: 'sign-in',
  validateSearch: (raw: Record<string, unknown>) => given({ to: text(raw, 'to') }),
  component: lazyPart(() => import('./pages/sign-in/SignedInPage')),
});

const oauthCallback = createRoute({
  getParentRoute: () => root,
  path: 'oauth/callback/$service',
  component: lazyPart(() => import('./pages/accounts/CallbackPage')),
});

export const router = createRouter({
  defaultErrorComponent: BrokenPage,
  routeTree: root.addChildren([
    now,
    approvals,
    approval,
    runs,
    run,
    tools,
    tool,
    sources,
    addSource,
    source,
    accounts,
    insight,
    audit,
    settings,
    settingsSection,
    signIn,
    oauthCallback,
  ]),
  basepath: BASE_PATH,
  defaultPreload: 'intent',
  scrollRestoration: true,
});

declare module '@tanstack/react-router' {
  interface Register {
    router: typeof router;
  }
}
