import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router';
import { useMemo } from 'react';

import { runQuery } from '../../api/queries';
import { verifyQuery } from '../../api/runs';
import { useMe } from '../../api/session';
import type { Run } from '../../api/types';
import { useNow } from '../../format/clock';
import { formatClockSeconds, formatDuration, formatExact } from '../../format/time';
import { PageTitle } from '../../shell/Page';
import { useTitle } from '../../shell/title';
import { Button } from '../../ui/Button';
import { Chip } from '../../ui/Chip';
import { classes } from '../../ui/classes';
import { CopyId } from '../../ui/Copy';
import { Foreign } from '../../ui/Foreign';
import { Glyph } from '../../ui/Glyph';
import { DangerIcon, DoneIcon, NextIcon } from '../../ui/icons';
import { Failure, Skeleton } from '../../ui/States';
import { ArtifactView } from '../../views/ArtifactView';
import { runWords, words } from '../../words';
import { CallPanel, PANEL_TABS } from './CallPanel';
import { EventTable } from './EventTable';
import { RunActions } from './RunActions';
import styles from './RunPage.module.css';
import { allSpans, lengthOf, pausesOf, spansOf, workOf, type Span } from './spans';
import { StatusChip } from './status';
import { Waterfall } from './Waterfall';

const MOST_EVENTS = 10_000;
const LIVE_S = 0.25;
const REST_S = 3600;

/** One run: its facts, its calls over time, its events, and the selected call. */
export default function RunPage() {
  const { id = '' } = useParams({ strict: false });
  const query = useQuery(runQuery(id));
  const name = query.data?.tool_name ?? id;
  useTitle(name);
  return (
    <div className={styles.page}>
      <header className={styles.top}>
        <Link to="/runs" className="soft">
          {words.shell.pages.runs}
        </Link>
        <Glyph icon={NextIcon} size={14} className="faint" />
        <PageTitle title={name} />
        {query.data && <StatusChip status={query.data.status} large />}
        <CopyId id={id} />
        {query.data && <RunActions run={query.data} />}
      </header>
      {query.isPending && <Skeleton rows={10} height={34} />}
      {query.error && <Failure error={query.error} what={`run ${id}`} onRetry={() => void query.refetch()} />}
      {query.data && <RunBody run={query.data} />}
    </div>
  );
}

function RunBody({ run }: { run: Run }) {
  const navigate = useNavigate();
  const { call, tab } = useSearch({ strict: false });
  const open = run.status === 'running' || run.status === 'paused';
  const now = useNow(open ? LIVE_S : REST_S);
  const events = useMemo(() => run.log ?? [], [run.log]);
  const spans = useMemo(() => spansOf(events, now), [events, now]);
  const all = useMemo(() => allSpans(spans), [spans]);
  const selected = all.find((span) => span.callId === call);
  const select = (callId: string | undefined) => void navigate({ to: '.', search: (old) => ({ ...old, call: callId }), replace: true });
  return (
    <>
      <RunFacts run={run} spans={spans} />
      <div className={classes(styles.body, selected && styles.withPanel)}>
        <div className={styles.left}>
          {spans.length > 0 && <Waterfall spans={spans} selected={call} onSelect={select} />}
          {events.length >= MOST_EVENTS && <p className={styles.note}>{runWords.eventsLimit(MOST_EVENTS)}</p>}
          {run.artifacts && run.artifacts.length > 0 && (
            <section className={styles.artifacts}>
              <h2>{runWords.artifacts}</h2>
              {run.artifacts.map((artifact) => (
                <ArtifactView key={artifact.id} artifact={artifact} />
              ))}
            </section>
          )}
          <EventTable events={events} call={selected && { id: selected.callId, tool: selected.tool }} />
        </div>
        {selected && (
          <CallPanel
            key={selected.callId}
            span={selected}
            runId={run.run_id}
            outermost={selected.callId === run.call_id}
            tab={PANEL_TABS.find((one) => one === tab) ?? 'call'}
            onTab={(next) => void navigate({ to: '.', search: (old) => ({ ...old, tab: next }), replace: true })}
            onClose={() => select(undefined)}
          />
        )}
      </div>
    </>
  );
}

function RunFacts({ run, spans }: { run: Run; spans: readonly Span[] }) {
  const { scopes } = useMe();
  const all = allSpans(spans);
  const failed = all.filter((span) => span.status === 'failed').length;
  const retries = all.reduce((sum, span) => sum + span.retries, 0);
  const end = Math.max(run.updated_at, ...all.map((span) => span.end));
  const waited = lengthOf(pausesOf(spans));
  return (
    <dl className={styles.facts}>
      <Fact name={runWords.user}>
        <Foreign text={run.user} />
      </Fact>
      <Fact name={runWords.began}>
        <time title={formatExact(run.started_at)}>{formatClockSeconds(run.started_at)}</time>
      </Fact>
      <Fact name={runWords.took}>{formatDuration((end - run.started_at) * 1000)}</Fact>
      <Fact name={runWords.work}>{formatDuration(lengthOf(workOf(spans)) * 1000)}</Fact>
      {waited > 0 && (
        <Fact name={runWords.waited}>
          <span className="wait-ink">{formatDuration(waited * 1000)}</span>
        </Fact>
      )}
      <Fact name={runWords.calls}>
        {all.length.toLocaleString()} {failed > 0 && <span className={styles.failed}>{runWords.failed(failed)}</span>}
      </Fact>
      {retries > 0 && <Fact name={runWords.retries}>{retries.toLocaleString()}</Fact>}
      {run.artifacts && run.artifacts.length > 0 && <Fact name={runWords.artifacts}>{run.artifacts.length.toLocaleString()}</Fact>}
      {(scopes.includes('answer') || scopes.includes('admin')) && (
        <div className={styles.verified}>
          <dt className="visually-hidden">{runWords.hash}</dt>
          <dd>
            <Verified run={run} />
          </dd>
        </div>
      )}
    </dl>
  );
}

function Fact({ name, children }: { name: string; children: React.ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd className="num">{children}</dd>
    </div>
  );
}

/** Whether the log of the run is unchanged; checked on request. */
function Verified({ run }: { run: Run }) {
  const cache = useQueryClient();
  const verify = useMutation({ mutationFn: () => cache.query({ ...verifyQuery(run.run_id), staleTime: 0 }) });
  if (verify.data) {
    const intact = verify.data.problems.length === 0;
    return (
      <>
        <Chip tone={intact ? 'ok' : 'fail'} icon={intact ? DoneIcon : DangerIcon} title={verify.data.problems.join('\n')}>
          {intact ? runWords.verified : runWords.notVerified}
        </Chip>
        {verify.data.problems.map((problem) => (
          <Foreign key={problem} text={problem} />
        ))}
      </>
    );
  }
  return (
    <Button look="ghost" disabled={verify.isPending} onClick={() => verify.mutate()}>
      {verify.error ? words.tryAgain : runWords.verify}
    </Button>
  );
}
