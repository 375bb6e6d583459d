import { Link, useNavigate } from '@tanstack/react-router';

import type { Run } from '../../api/types';
import { useNow } from '../../format/clock';
import { formatDuration } from '../../format/time';
import { Chip } from '../../ui/Chip';
import { classes } from '../../ui/classes';
import { Foreign } from '../../ui/Foreign';
import { Glyph } from '../../ui/Glyph';
import { AgentIcon, PersonIcon } from '../../ui/icons';
import { Table, type Column } from '../../ui/Table';
import { Moment } from '../../ui/Time';
import { ToolName } from '../../ui/ToolName';
import { runWords } from '../../words';
import styles from './RunTable.module.css';
import { StatusChip } from './status';

const COLUMNS: readonly Column<Run>[] = [
  {
    key: 'tool',
    title: runWords.tool,
    cell: (run) => (
      <>
        <Link to="/runs/$id" params={{ id: run.run_id }} className={styles.tool} onClick={(event) => event.stopPropagation()}>
          <ToolName name={run.tool_name} />
        </Link>
        <span className={styles.below}>
          <State run={run} />
        </span>
      </>
    ),
  },
  { key: 'status', title: runWords.state, wide: true, cell: (run) => <State run={run} /> },
  { key: 'user', title: runWords.user, wide: true, cell: (run) => <Foreign text={run.user} limit={60} /> },
  { key: 'caller', title: runWords.caller, widest: true, cell: (run) => <Caller run={run} /> },
  { key: 'began', title: runWords.began, right: true, cell: (run) => <Moment at={run.started_at} /> },
  { key: 'took', title: runWords.took, right: true, cell: (run) => <span className={styles.took}><Took run={run} /></span> },
  { key: 'work', title: runWords.work, right: true, widest: true, cell: (run) => <span className={styles.took}>{formatDuration(run.work_ms)}</span> },
  { key: 'events', title: runWords.events, right: true, widest: true, cell: (run) => run.events.toLocaleString() },
];

/** Runs, each of which opens. */
export function RunTable({ runs, label }: { runs: readonly Run[]; label: string }) {
  const navigate = useNavigate();
  return (
    <Table
      columns={COLUMNS}
      rows={runs}
      keyOf={(run) => run.run_id}
      label={label}
      onOpen={(run) => void navigate({ to: '/runs/$id', params: { id: run.run_id } })}
    />
  );
}

/** The name of the key, or what else the gateway knows the caller by. */
function Caller({ run: { caller, caller_name: name } }: { run: Run }) {
  if (!caller) return <span className="faint">–</span>;
  return (
    <span className={classes('row', styles.caller)} title={caller}>
      <Glyph icon={name ? AgentIcon : PersonIcon} size={14} className="faint" />
      <Foreign text={name ?? caller.split(':')[0] ?? caller} limit={60} />
    </span>
  );
}

function State({ run }: { run: Run }) {
  return (
    <span className={styles.state}>
      <StatusChip status={run.status} />
      {run.error_code && run.status === 'failed' && (
        <Chip tone="fail">
          <Foreign text={run.error_code} limit={40} />
        </Chip>
      )}
      {run.status === 'running' && run.progress?.text != null && (
        <span className="soft cut">
          <Foreign text={run.progress.text} limit={60} />
        </span>
      )}
    </span>
  );
}

function Took({ run }: { run: Run }) {
  const open = run.status === 'running' || run.status === 'paused';
  return open ? <Since at={run.started_at} /> : formatDuration(run.duration_ms);
}

function Since({ at }: { at: number }) {
  return formatDuration(Math.max(0, useNow(1) - at) * 1000);
}
