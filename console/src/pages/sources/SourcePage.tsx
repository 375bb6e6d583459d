import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { Link, useNavigate, useParams } from '@tanstack/react-router';
import { useState } from 'react';

import { keys } from '../../api/queries';
import { changeSource, reloadSource, removeSource, sourceLogQuery, sourceQuery } from '../../api/sources';
import { useMe } from '../../api/session';
import type { Source } from '../../api/types';
import { useNow } from '../../format/clock';
import { formatCount } from '../../format/number';
import { formatClockSeconds, formatDuration } from '../../format/time';
import { Page } from '../../shell/Page';
import { Button } from '../../ui/Button';
import { Dialog } from '../../ui/Dialog';
import { Dot } from '../../ui/Dot';
import { Facts } from '../../ui/Facts';
import { Field, Input } from '../../ui/Field';
import { Foreign } from '../../ui/Foreign';
import { AgainIcon, RemoveIcon } from '../../ui/icons';
import { Failure, Skeleton } from '../../ui/States';
import { sourceWords, words } from '../../words';
import { Attention } from './Attention';
import styles from './Sources.module.css';
import { lookOf } from './state';

/** One source: its state, its settings, its log, and what can be changed. */
export default function SourcePage() {
  const { name = '' } = useParams({ strict: false });
  const me = useMe();
  const now = useNow(1);
  const query = useQuery(sourceQuery(name));
  const canChange = me.operator && me.scopes.includes('admin');
  const source = query.data;
  return (
    <Page title={name} note={<Link to="/sources">{words.shell.pages.sources}</Link>} actions={source && canChange && <Actions source={source} />}>
      {query.isPending && <Skeleton />}
      {query.error && <Failure error={query.error} what={`source ${name}`} onRetry={() => void query.refetch()} />}
      {source && (
        <div className={styles.page}>
          {lookOf(source, now).attention && <Attention source={source} now={now} canChange={canChange} />}
          <SourceFacts source={source} now={now} />
          <Log name={name} />
        </div>
      )}
    </Page>
  );
}

function SourceFacts({ source, now }: { source: Source; now: number }) {
  const { tone, text } = lookOf(source, now);
  const yesNo = (value: boolean) => (value ? sourceWords.yes : sourceWords.no);
  return (
    <Facts
      facts={[
        [
          sourceWords.state,
          <span className="row">
            <Dot tone={tone} /> {text}
          </span>,
        ],
        [sourceWords.kind, source.transport],
        [
          sourceWords.reachedBy,
          <span className="mono">
            <Foreign text={source.target} block />
          </span>,
        ],
        [
          sourceWords.tools,
          <Link to="/tools" search={{ source: source.name }} className="link">
            {formatCount(source.tools)}
          </Link>,
        ],
        [
          sourceWords.calls,
          <Link to="/runs" search={{ source: source.name }} className="link">
            {formatCount(source.calls_1h)}
          </Link>,
        ],
        ['p95', source.p95_ms === null ? '–' : formatDuration(source.p95_ms)],
        [sourceWords.lock, source.lock ? sourceWords.lockCounts(source.lock.pinned, source.lock.changed, source.lock.new) : '–'],
        [sourceWords.trust, `${yesNo(source.trust)}. ${sourceWords.trustHint}`],
        [sourceWords.required, yesNo(source.required)],
        [sourceWords.defined, source.declared ? sourceWords.declared.yes : sourceWords.declared.no],
        ...(source.service === null ? [] : [[sourceWords.service, <Foreign text={source.service} />] as const]),
        ...(source.problems.length === 0 ? [] : [[sourceWords.problems, <Foreign text={source.problems.join('\n')} block />] as const]),
      ]}
    />
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
      {lines.length === 0 && !log.data?.stderr && <p className="soft">{sourceWords.none}</p>}
      {lines.length > 0 && (
        <pre className={styles.lines}>
          <Foreign text={lines.map((line) => `${formatClockSeconds(line.at)}  ${line.text}`).join('\n')} block />
        </pre>
      )}
      {log.data?.stderr && (
        <>
          <h3>{sourceWords.stderr}</h3>
          <pre className={styles.lines}>
            <Foreign text={log.data.stderr} block limit={20_000} />
          </pre>
        </>
      )}
    </section>
  );
}
