import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { Link, useNavigate, useParams } from '@tanstack/react-router';
import { useState } from 'react';

import { keys } from '../../api/queries';
import { changeSource, reloadSource, removeSource, sourceLogQuery, sourceQuery } from '../../api/sources';
import { useMe } from '../../api/session';
import type { Source } from '../../api/types';
import { useNow } from '../../format/clock';
import { formatClockSeconds } from '../../format/time';
import { Page } from '../../shell/Page';
import { Button } from '../../ui/Button';
import { Chip } from '../../ui/Chip';
import { CopyBlock } from '../../ui/Copy';
import { Dialog } from '../../ui/Dialog';
import { Dot } from '../../ui/Dot';
import { Facts } from '../../ui/Facts';
import { Field, Input } from '../../ui/Field';
import { Foreign } from '../../ui/Foreign';
import { AgainIcon, RemoveIcon } from '../../ui/icons';
import { Failure, Skeleton } from '../../ui/States';
import { Moment } from '../../ui/Time';
import { sourceWords, words } from '../../words';
import { Attention } from './Attention';
import { Health } from './Health';
import { SourceTools } from './SourceTools';
import styles from './Sources.module.css';
import { lookOf } from './state';

/** One source: its state, its health, its tools, its settings, its log, and what can be changed. */
export default function SourcePage() {
  const { name = '' } = useParams({ strict: false });
  const me = useMe();
  const now = useNow(1);
  const query = useQuery(sourceQuery(name));
  const canChange = me.operator && me.scopes.includes('admin');
  const source = query.data;
  return (
    <Page
      title={name}
      crumb={<Link to="/sources">{words.shell.pages.sources}</Link>}
      note={source && <State source={source} now={now} />}
      actions={source && canChange && <Actions source={source} />}
    >
      {query.isPending && <Skeleton />}
      {query.error && <Failure error={query.error} what={`source ${name}`} onRetry={() => void query.refetch()} />}
      {source && (
        <div className={styles.page}>
          {lookOf(source, now).attention && <Attention source={source} now={now} canChange={canChange} />}
          <div className={styles.columns}>
            <div className={styles.column}>
              <Health
                filter={{ source: name }}
                head={
                  <div className="row">
                    <h2>{sourceWords.health}</h2>
                    <Link to="/runs" search={{ source: name }} className="link t12 end">
                      {sourceWords.allRuns}
                    </Link>
                  </div>
                }
              />
              <SourceTools source={source} />
              <Log name={name} />
            </div>
            <div className={styles.column}>
              <SourceFacts source={source} />
              {source.yaml != null && (
                <section className={styles.section}>
                  <h2>{sourceWords.configuration}</h2>
                  <CopyBlock text={source.yaml} />
                </section>
              )}
            </div>
          </div>
        </div>
      )}
    </Page>
  );
}

function State({ source, now }: { source: Source; now: number }) {
  const { tone, text } = lookOf(source, now);
  return (
    <span className="row">
      <Dot tone={tone} />
      {text}
      <Chip tone="line">
        <Foreign text={source.transport} limit={40} />
      </Chip>
    </span>
  );
}

function SourceFacts({ source }: { source: Source }) {
  const yesNo = (value: boolean) => (value ? sourceWords.yes : sourceWords.no);
  return (
    <section className={styles.section}>
      <h2>{sourceWords.about}</h2>
      <Facts
        facts={[
          [
            sourceWords.reachedBy,
            <span className="mono">
              <Foreign text={source.target} block />
            </span>,
          ],
          [sourceWords.lock, source.lock ? sourceWords.lockCounts(source.lock.pinned, source.lock.changed, source.lock.new) : '–'],
          ...(source.lock?.written_at == null ? [] : [[sourceWords.acceptedAt, <Moment at={source.lock.written_at} />] as const]),
          [sourceWords.trust, yesNo(source.trust)],
          [sourceWords.required, yesNo(source.required)],
          [sourceWords.defined, source.declared ? sourceWords.declared.yes : sourceWords.declared.no],
          ...(source.service === null ? [] : [[sourceWords.service, <Foreign text={source.service} />] as const]),
          // Changed definitions stand above, each with its acceptance.
          ...(source.problems.length === 0 || source.lock?.changed ? [] : [[sourceWords.problems, <Foreign text={source.problems.join('\n')} block />] as const]),
        ]}
      />
    </section>
  );
}

function Actions({ source }: { source: Source }) {
  const cache = useQueryClient();
  const [removing, setRemoving] = useState(false);
  const refresh = () => {
    void cache.invalidateQueries({ queryKey: keys.sources });
    void cache.invalidateQueries({ queryKey: keys.source(source.name) });
  };
  const change = useMutation({ mutationFn: (next: { enabled?: boolean; trust?: boolean }) => changeSource(source.name, next), onSettled: refresh });
  const reload = useMutation({ mutationFn: () => reloadSource(source.name), onSettled: refresh });
  const error = change.error ?? reload.error;
  return (
    <>
      {error && <Foreign text={error.message} className="fail-ink" limit={120} />}
      {source.enabled && (
        <Button icon={AgainIcon} disabled={reload.isPending} onClick={() => reload.mutate()}>
          {sourceWords.reconnect}
        </Button>
      )}
      {source.declared && (
        <Button disabled={change.isPending} title={sourceWords.trustHint} onClick={() => change.mutate({ trust: !source.trust })}>
          {source.trust ? sourceWords.distrust : sourceWords.doTrust}
        </Button>
      )}
      <Button disabled={change.isPending} onClick={() => change.mutate({ enabled: !source.enabled })}>
        {source.enabled ? sourceWords.disable : sourceWords.enable}
      </Button>
      <Button look="danger" icon={RemoveIcon} onClick={() => setRemoving(true)}>
        {sourceWords.remove}
      </Button>
      <RemoveDialog source={source} open={removing} onClose={() => setRemoving(false)} />
    </>
  );
}

function RemoveDialog({ source, open, onClose }: { source: Source; open: boolean; onClose: () => void }) {
  const cache = useQueryClient();
  const navigate = useNavigate();
  const [typed, setTyped] = useState('');
  const remove = useMutation({
    mutationFn: () => removeSource(source),
    onSuccess: () => {
      void cache.invalidateQueries({ queryKey: keys.sources });
      void navigate({ to: '/sources' });
    },
  });
  return (
    <Dialog
      open={open}
      onClose={onClose}
      title={sourceWords.removeTitle(source.name)}
      foot={
        <Button look="danger" disabled={typed !== source.name || remove.isPending} onClick={() => remove.mutate()}>
          {sourceWords.remove}
        </Button>
      }
    >
      <Field label={sourceWords.removeHint(source.name)}>{(field) => <Input {...field} value={typed} onChange={(event) => setTyped(event.target.value)} />}</Field>
      {remove.error && <Failure inline error={remove.error} />}
    </Dialog>
  );
}

function Log({ name }: { name: string }) {
  const log = useQuery({ ...sourceLogQuery(name), retry: false });
  if (log.error) return <Failure inline error={log.error} />;
  const lines = log.data?.lines ?? [];
  return (
    <section className={styles.section}>
      <h2>{sourceWords.log}</h2>
      {lines.length === 0 && !log.data?.stderr && <p className="soft">{sourceWords.noLog}</p>}
      {lines.length > 0 && (
        <pre className={styles.lines} tabIndex={0} role="region" aria-label={sourceWords.log}>
          <Foreign text={lines.map((line) => `${formatClockSeconds(line.at)}  ${line.text}`).join('\n')} block />
        </pre>
      )}
      {log.data?.stderr && (
        <>
          <h3>{sourceWords.stderr}</h3>
          <pre className={styles.lines} tabIndex={0} role="region" aria-label={sourceWords.stderr}>
            <Foreign text={log.data.stderr} block limit={20_000} />
          </pre>
        </>
      )}
    </section>
  );
}
