import { useQuery } from '@tanstack/react-query';

import { statsQuery } from '../../api/queries';
import type { Stats } from '../../api/types';
import { formatCount } from '../../format/number';
import { classes } from '../../ui/classes';
import { Dot } from '../../ui/Dot';
import { Foreign } from '../../ui/Foreign';
import { Empty, Failure, Skeleton } from '../../ui/States';
import { Table, type Column } from '../../ui/Table';
import { settingsWords, words } from '../../words';
import { SectionHead } from './SectionHead';
import styles from './settings.module.css';

type Webhook = Stats['webhooks'][number];

const say = settingsWords;
const titles = say.webhookColumns;
const TONE = { ok: 'ok', failing: 'fail', gone: 'idle' } as const;

const COLUMNS: Column<Webhook>[] = [
  { key: 'name', title: titles.name, cell: (hook) => <Foreign text={hook.name} className={classes('medium', styles.hook)} /> },
  {
    key: 'state',
    title: titles.state,
    cell: (hook) => (
      <span className="row">
        <Dot tone={TONE[hook.state]} />
        {hook.state}
      </span>
    ),
  },
  { key: 'delivered', title: titles.delivered, cell: (hook) => formatCount(hook.delivered), right: true, wide: true },
  { key: 'behind', title: titles.behind, cell: (hook) => formatCount(hook.behind), right: true },
  { key: 'error', title: titles.error, cell: (hook) => <Foreign text={hook.error ?? '–'} />, wide: true },
];

/** Where events are delivered, and how that goes. */
export function Webhooks() {
  const stats = useQuery(statsQuery);
  if (stats.isPending) return <Skeleton rows={3} />;
  if (stats.error) return <Failure error={stats.error} onRetry={() => void stats.refetch()} />;
  const { webhooks } = stats.data;
  return (
    <>
      <SectionHead section="webhooks" />
      {stats.data.accounts === null ? (
        <Empty title={say.webhooksOfOperator} />
      ) : webhooks.length === 0 ? (
        <Empty title={say.noWebhooks}>{say.noWebhooksMore}</Empty>
      ) : (
        <div className="box">
          <Table columns={COLUMNS} rows={webhooks} keyOf={(hook) => hook.name} label={words.shell.sections.webhooks} />
        </div>
      )}
    </>
  );
}
