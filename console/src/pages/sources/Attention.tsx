import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';

import { keys } from '../../api/queries';
import { acceptDefinitions, changeSource, lockDiffQuery, reloadSource, sourceLogQuery, type LockDifference } from '../../api/sources';
import type { Source } from '../../api/types';
import { formatClockSeconds, formatCountdown } from '../../format/time';
import { Button } from '../../ui/Button';
import { classes } from '../../ui/classes';
import { Foreign } from '../../ui/Foreign';
import { AgainIcon } from '../../ui/icons';
import { Failure } from '../../ui/States';
import { ToolName } from '../../ui/ToolName';
import { sourceWords, words } from '../../words';
import { PartDiff } from '../tools/PartDiff';
import styles from './Sources.module.css';

const SHOWN_LINES = 4;

interface AttentionProps {
  source: Source;
  now: number;
  canChange: boolean;
}

/** What is wrong with a source, and what can be done about it. */
export function Attention(props: AttentionProps) {
  const { source } = props;
  if (source.state !== 'down' && source.breaker.state === 'closed' && source.lock && source.lock.changed > 0) return <Changed {...props} />;
  return <Down {...props} />;
}

function Down({ source, now, canChange }: AttentionProps) {
  const cache = useQueryClient();
  const refresh = () => void cache.invalidateQueries({ queryKey: keys.sources });
  const reload = useMutation({ mutationFn: () => reloadSource(source.name), onSettled: refresh });
  const disable = useMutation({ mutationFn: () => changeSource(source.name, { enabled: false }), onSettled: refresh });
  const failed = source.state === 'down';
  const retries = [
    source.failures > 0 && sourceWords.failedTries(source.failures),
    source.next_try_at !== null && source.next_try_at > now && sourceWords.nextTry(formatCountdown(source.next_try_at - now)),
  ].filter((part) => part !== false);
  return (
    <section className={classes(styles.attention, failed ? styles.failed : styles.waiting)}>
      <header className="row wrap">
        <b className={failed ? 'fail-ink' : 'wait-ink'}>
          <Foreign text={source.error ?? sourceWords.down} limit={400} />
        </b>
        <span className="soft">{retries.join(', ')}</span>
        {canChange && (
          <span className="row end">
            <Button icon={AgainIcon} disabled={reload.isPending} onClick={() => reload.mutate()}>
              {reload.isPending ? sourceWords.trying : sourceWords.tryNow}
            </Button>
            <Button look="ghost" disabled={disable.isPending} onClick={() => disable.mutate()}>
              {sourceWords.disable}
            </Button>
          </span>
        )}
      </header>
      {(reload.error ?? disable.error) && <Failure inline error={reload.error ?? disable.error} />}
      <LastLines name={source.name} />
    </section>
  );
}

/** The end of what the source wrote. */
function LastLines({ name }: { name: string }) {
  const log = useQuery({ ...sourceLogQuery(name), retry: false }).data;
  const stderr = log?.stderr?.trimEnd().split('\n').slice(-SHOWN_LINES) ?? [];
  const events = (log?.lines ?? []).slice(-SHOWN_LINES).map((line) => `${formatClockSeconds(line.at)}  ${line.text}`);
  const lines = stderr.length > 0 && stderr[0] !== '' ? stderr : events;
  if (lines.length === 0) return null;
  return (
    <pre className={styles.lines} tabIndex={0} role="region" aria-label={sourceWords.log}>
      <Foreign text={lines.join('\n')} block />
    </pre>
  );
}

/** Tools whose definitions are not the accepted ones, before and after. */
export function Changed({ source, canChange }: AttentionProps) {
  const cache = useQueryClient();
  const diff = useQuery(lockDiffQuery(source.name));
  const accept = useMutation({
    mutationFn: (differences: readonly LockDifference[]) => acceptDefinitions(differences),
    onSettled: () => void cache.invalidateQueries({ queryKey: keys.sources }),
  });
  const differences = diff.data?.differences ?? [];
  return (
    <section className={classes(styles.attention, styles.waiting)}>
      <header className="row wrap">
        <b className="wait-ink">{sourceWords.changedTitle}</b>
        <span className="soft">{sourceWords.changedNote}</span>
        {canChange && differences.length > 1 && (
          <span className="end">
            <Button disabled={accept.isPending} onClick={() => accept.mutate(differences)}>
              {sourceWords.approveAll(differences.length)}
            </Button>
          </span>
        )}
      </header>
      {diff.isPending && <p className="soft">{words.loading}</p>}
      {(diff.error ?? accept.error) && <Failure inline error={diff.error ?? accept.error} />}
      {differences.map((difference) => (
        <Difference
          key={difference.tool}
          difference={difference}
          onAccept={canChange ? () => accept.mutate([difference]) : undefined}
          disabled={accept.isPending}
        />
      ))}
    </section>
  );
}

interface DifferenceProps {
  difference: LockDifference;
  onAccept: (() => void) | undefined;
  disabled: boolean;
}

/** One tool: what changed in it, part by part, and its acceptance. */
function Difference({ difference: { tool, kind, changes }, onAccept, disabled }: DifferenceProps) {
  return (
    <div className={styles.difference}>
      <div className="row">
        <span className="grow cut">
          <ToolName name={tool} />
          {changes.length === 0 && <span className="soft"> {kind === 'gone' ? sourceWords.gone : sourceWords.newTools(1)}</span>}
        </span>
        {onAccept && (
          <Button disabled={disabled} onClick={onAccept} aria-label={`${sourceWords.approve}: ${tool}`}>
            {sourceWords.approve}
          </Button>
        )}
      </div>
      {changes.map((change) => (
        <PartDiff key={change.part} {...change} />
      ))}
    </div>
  );
}
