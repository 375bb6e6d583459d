import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';

import { runListQuery } from '../../api/runs';
import type { Tool } from '../../api/types';
import { formatCount, formatPart } from '../../format/number';
import { formatDuration } from '../../format/time';
import { Facts } from '../../ui/Facts';
import { Empty, Failure, Skeleton } from '../../ui/States';
import { sourceWords, toolWords } from '../../words';
import { RunTable } from '../runs/RunTable';
import { Health } from '../sources/Health';
import styles from './Tabs.module.css';

const SHOWN = 20;

/** The last runs of a tool, its calls of the last day, and its counts since the start of the worker. */
export function CallsTab({ tool }: { tool: Tool }) {
  const runs = useQuery(runListQuery({ tool: tool.name }, SHOWN));
  const { stats } = tool;
  return (
    <div className={styles.padded}>
      <Health filter={{ tool: tool.name }} head={<h3>{sourceWords.health}</h3>} />
      {stats && stats.count > 0 && (
        <section className={styles.section}>
          <h3>{toolWords.callsSinceStart}</h3>
          <Facts
            facts={[
              [toolWords.calls, formatCount(stats.count)],
              [toolWords.failures, `${formatCount(stats.failures)} (${formatPart(stats.failures / stats.count)})`],
              [toolWords.average, formatDuration(stats.average_ms)],
              [toolWords.schemaViolations, formatCount(stats.schema_violations)],
            ]}
          />
        </section>
      )}
      <section className={styles.section}>
        <div className="row">
          <h3>{toolWords.runs}</h3>
          <Link to="/runs" search={{ tool: tool.name }} className="link end">
            {toolWords.allRuns}
          </Link>
        </div>
        {runs.isPending && <Skeleton rows={4} />}
        {runs.error && <Failure error={runs.error} onRetry={() => void runs.refetch()} />}
        {runs.data?.items.length === 0 && <Empty inline title={toolWords.emptyCalls} />}
        {runs.data && runs.data.items.length > 0 && <RunTable runs={runs.data.items} label={toolWords.runs} />}
      </section>
    </div>
  );
}
