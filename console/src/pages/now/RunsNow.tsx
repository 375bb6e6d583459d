import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';

import { runsQuery } from '../../api/queries';
import type { Run } from '../../api/types';
import { shortUser } from '../../cards/kinds';
import { useNow } from '../../format/clock';
import { formatStopwatch } from '../../format/time';
import { numberOf, textOf } from '../../live/events';
import { useRecentEvents } from '../../live/recent';
import { Dot } from '../../ui/Dot';
import { Foreign } from '../../ui/Foreign';
import { Empty, Failure, Skeleton } from '../../ui/States';
import { ToolName } from '../../ui/ToolName';
import { words } from '../../words';
import styles from './now.module.css';
import { Section } from './Section';

/** Runs at this moment, with the progress that their tools report. */
export function RunsNow() {
  const runs = useQuery(runsQuery);
  const running = (runs.data?.items ?? []).filter((run) => run.status === 'running');
  return (
    <Section title={words.now.running} count={running.length}>
      <div className="box">
        {runs.isPending && <Skeleton rows={2} height={36} />}
        {runs.error && <Failure error={runs.error} onRetry={() => void runs.refetch()} inline />}
        {runs.data && running.length === 0 && <Empty title={words.now.noneRun} inline />}
        {running.map((run) => (
          <RunLine key={run.run_id} run={run} />
        ))}
      </div>
    </Section>
  );
}

function RunLine({ run }: { run: Run }) {
  const now = useNow(1);
  const last = useRecentEvents().find(
    (event) => event.run_id === run.run_id && (event.type === 'SUBAGENT_ACTION' || event.type === 'CALL_RETRIED'),
  );
  const retried = last?.type === 'CALL_RETRIED';
  // What this page saw is newer than the list of runs.
  const fraction = (last && numberOf(last, 'fraction')) ?? run.progress?.fraction ?? undefined;
  const text = last ? textOf(last, retried ? 'error_code' : 'text') : (run.progress?.text ?? '');
  return (
    <Link to="/runs/$id" params={{ id: run.run_id }} className={styles.line}>
      <Dot tone={retried ? 'wait' : 'run'} />
      <span className="cut">
        <ToolName name={run.tool_name} /> {text && <Foreign text={text} cutOnly className="soft" />}
      </span>
      <span className="end row">
        {fraction !== undefined && (
          <span className={styles.bar} role="progressbar" aria-valuenow={Math.round(fraction * 100)} aria-label={run.tool_name}>
            <i style={{ width: `${Math.min(1, fraction) * 100}%` }} />
          </span>
        )}
        <span className="faint num">{formatStopwatch(now - run.started_at)}</span>
        <span className="soft t12">
          <Foreign text={shortUser(run.user)} />
        </span>
      </span>
    </Link>
  );
}
