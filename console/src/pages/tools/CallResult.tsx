import { useMutation } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';

import { api } from '../../api/client';
import type { Problem } from '../../api/problem';
import { useMe } from '../../api/session';
import type { Outcome } from '../../api/types';
import { gatewayNow, useNow } from '../../format/clock';
import { formatDuration, formatStopwatch } from '../../format/time';
import { Button, buttonClasses } from '../../ui/Button';
import { Chip } from '../../ui/Chip';
import { Foreign } from '../../ui/Foreign';
import { AskIcon, DoneIcon, FailureIcon } from '../../ui/icons';
import { Failure } from '../../ui/States';
import { ResultView } from '../../views/ResultView';
import { toolWords } from '../../words';
import styles from './TryIt.module.css';
import type { CallState, Progress } from './use-call';

interface CallResultProps {
  call: CallState;
  tool: string;
  onRenew: () => void;
}

/** The outcome of a call: progress while it runs, then the result, the failure, or the question it waits for. */
export function CallResult({ call, tool, onRenew }: CallResultProps) {
  switch (call.state) {
    case 'idle':
      return <p className="faint">{toolWords.resultHint}</p>;
    case 'running':
      return <Running runId={call.runId} progress={call.progress} />;
    case 'refused':
      return <Failure inline error={call.problem satisfies Problem} />;
    case 'ended':
      return (
        <>
          <Ended outcome={call.outcome} tool={tool} />
          {call.outcome.status !== 'paused' && (
            <div className="row">
              <Button onClick={onRenew} title={toolWords.newCallHint}>
                {toolWords.newCall}
              </Button>
            </div>
          )}
        </>
      );
  }
}

function Running({ runId, progress }: { runId: string | undefined; progress: Progress | undefined }) {
  const [began] = useState(gatewayNow);
  const now = useNow(1);
  return (
    <div className={styles.block} role="status">
      <div className="row">
        <Chip tone="run" large>
          {toolWords.calling}
        </Chip>
        <span className="faint num">{formatStopwatch(Math.max(0, now - began))}</span>
        <RunLink id={runId} />
      </div>
      {progress && (
        <div className={styles.progress}>
          <Foreign text={progress.text} />
          {progress.fraction !== undefined && <progress value={progress.fraction} max={1} aria-label={toolWords.calling} />}
        </div>
      )}
      {runId !== undefined && <CancelCall id={runId} />}
    </div>
  );
}

function Ended({ outcome, tool }: { outcome: Outcome; tool: string }) {
  if (outcome.status === 'paused') return <Paused outcome={outcome} />;
  if (outcome.status === 'failed') return <Failed outcome={outcome} />;
  const lead = (
    <>
      <Chip tone="ok" icon={DoneIcon} large>
        {toolWords.completed}
      </Chip>
      <span className="faint">{toolWords.in(formatDuration(outcome.duration_ms))}</span>
      <RunLink id={outcome.run_id} />
    </>
  );
  const { trust, origin } = outcome.meta;
  return (
    <ResultView
      content={outcome.content}
      artifacts={outcome.artifacts}
      untrusted={trust === 'untrusted'}
      origin={typeof origin === 'string' ? origin : undefined}
      name={tool}
      lead={lead}
    />
  );
}

function Failed({ outcome }: { outcome: Outcome }) {
  const { error } = outcome;
  return (
    <div className={styles.block} role="alert">
      <div className="row">
        <Chip tone="fail" icon={FailureIcon} large>
          {toolWords.failed}
        </Chip>
        <span className="faint">{toolWords.in(formatDuration(outcome.duration_ms))}</span>
        <RunLink id={outcome.run_id} />
      </div>
      {error && (
        <div className={styles.failure}>
          <Foreign text={error.message} block />
          <p className="row wrap">
            <span className="mono">
              <Foreign text={error.error_code} />
            </span>
            <span className="soft">
              <Foreign text={error.category} />
            </span>
            <span className="soft">{retrySentence(error)}</span>
          </p>
          {error.issues && (
            <ul className={styles.issues}>
              {error.issues.map((issue) => (
                <li key={issue}>
                  <Foreign text={issue} />
                </li>
              ))}
            </ul>
          )}
        </div>
      )}
    </div>
  );
}

function retrySentence({ is_retryable: retryable, retry_after_seconds: seconds }: NonNullable<Outcome['error']>): string {
  if (!retryable) return toolWords.never;
  return seconds === null ? toolWords.later : toolWords.laterIn(formatDuration(seconds * 1000));
}

function Paused({ outcome }: { outcome: Outcome }) {
  const me = useMe();
  const question = outcome.pending;
  if (!question) return null;
  return (
    <div className={styles.block} role="status">
      <div className="row">
        <Chip tone="wait" icon={AskIcon} large>
          {toolWords.pausedKinds[question.kind] ?? toolWords.paused}
        </Chip>
        <RunLink id={outcome.run_id} />
      </div>
      <div className={styles.paused}>
        <Foreign text={question.prompt} block />
        <p className="soft">
          {toolWords.answerers}: <Foreign text={question.answerers?.join(', ') ?? toolWords.anyone} />
          {question.four_eyes && `, ${toolWords.fourEyes}`}
        </p>
        {question.four_eyes && !me.operator && <p className="soft">{toolWords.whoYouAre}</p>}
        <div className="row wrap">
          <Link to="/approvals/$id" params={{ id: question.id }} className={buttonClasses('primary')}>
            {toolWords.openCard}
          </Link>
          {outcome.run_id !== null && <CancelCall id={outcome.run_id} />}
        </div>
      </div>
    </div>
  );
}

function CancelCall({ id }: { id: string }) {
  const cancel = useMutation({ mutationFn: () => api.POST('/api/v1/runs/{run_id}/cancel', { params: { path: { run_id: id } } }) });
  if (cancel.error) return <Failure inline error={cancel.error} />;
  return (
    <Button look="ghost" disabled={!cancel.isIdle} onClick={() => cancel.mutate()}>
      {cancel.isIdle ? toolWords.cancelCall : toolWords.cancelled}
    </Button>
  );
}

function RunLink({ id }: { id: string | null | undefined }) {
  if (!id) return null;
  return (
    <Link to="/runs/$id" params={{ id }} className={styles.run} title={toolWords.openRun}>
      {id}
    </Link>
  );
}
