import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';

import { outcomeQuery } from '../../api/runs';
import type { Event } from '../../api/types';
import { formatDuration } from '../../format/time';
import { numberOf, textOf } from '../../live/events';
import { equal, fromPlain, stringify } from '../../schema/json';
import { IconButton, buttonClasses } from '../../ui/Button';
import { CopyId } from '../../ui/Copy';
import { Facts } from '../../ui/Facts';
import { Foreign } from '../../ui/Foreign';
import { CloseIcon } from '../../ui/icons';
import { Failure } from '../../ui/States';
import { TabList, TabPanel, Tabs } from '../../ui/Tabs';
import { ToolName } from '../../ui/ToolName';
import { JsonTree } from '../../views/JsonTree';
import { ResultView } from '../../views/ResultView';
import { runWords, words } from '../../words';
import { PartDiff } from '../tools/PartDiff';
import styles from './CallPanel.module.css';
import type { Span } from './spans';
import { StatusChip } from './status';

export const PANEL_TABS = ['call', 'arguments', 'result', 'card'] as const;
export type PanelTab = (typeof PANEL_TABS)[number];

interface CallPanelProps {
  span: Span;
  runId: string;
  /** The outermost call, whose outcome may be stored. */
  outermost: boolean;
  tab: PanelTab;
  onTab: (tab: PanelTab) => void;
  onClose: () => void;
}

/** The selected call: its times, its arguments, its result and its approval. */
export function CallPanel({ span, runId, outermost, tab, onTab, onClose }: CallPanelProps) {
  const tabs = PANEL_TABS.filter((one) => one !== 'card' || span.pendingId !== undefined);
  return (
    <aside className={styles.panel} aria-label={span.tool}>
      <header className="row">
        <h2 className="grow">
          <ToolName name={span.tool} />
        </h2>
        <IconButton icon={CloseIcon} label={words.close} onClick={onClose} />
      </header>
      <Tabs value={tabs.includes(tab) ? tab : 'call'} onChange={onTab} className={styles.tabs}>
        <TabList label={span.tool} items={tabs.map((value) => ({ value, label: runWords.tabs[value] }))} />
        <TabPanel value="call">
          <CallFacts span={span} />
        </TabPanel>
        <TabPanel value="arguments">
          <Arguments span={span} />
        </TabPanel>
        <TabPanel value="result">
          {outermost && !span.open ? <StoredResult span={span} runId={runId} /> : <Summary span={span} />}
        </TabPanel>
        <TabPanel value="card">
          {span.pendingId !== undefined && (
            <Link to="/approvals/$id" params={{ id: span.pendingId }} className={buttonClasses()}>
              {runWords.openCard}
            </Link>
          )}
        </TabPanel>
      </Tabs>
    </aside>
  );
}

function CallFacts({ span }: { span: Span }) {
  const end = eventOf(span, 'TOOL_CALL_COMPLETED') ?? eventOf(span, 'TOOL_CALL_FAILED');
  const started = eventOf(span, 'TOOL_CALL_STARTED');
  const asked = eventOf(span, 'APPROVAL_REQUESTED') ?? eventOf(span, 'CALL_PAUSED');
  const answer = ['APPROVAL_GRANTED', 'APPROVAL_DENIED', 'CALL_RESUMED', 'QUESTION_EXPIRED'].map((type) => eventOf(span, type)).find((one) => one);
  const worked = end && numberOf(end, 'duration_ms');
  const total = (span.end - span.begin) * 1000;
  const checks = started && numberOf(started, 'checks_ms');
  const queue = started && numberOf(started, 'queue_ms');
  const target = targetOf(asked);
  const facts: (readonly [string, ReactNode] | undefined)[] = [
    [runWords.state, <StatusChip status={span.status} />],
    [
      runWords.took,
      <>
        {formatDuration(worked ?? total)} {worked !== undefined && total > worked * 1.5 && <span className="soft">{runWords.tookOf(formatDuration(total))}</span>}
      </>,
    ],
    queue === undefined ? undefined : [runWords.queueTime, formatDuration(queue)],
    checks === undefined ? undefined : [runWords.checksTime, `${checks < 10 ? checks.toFixed(1) : Math.round(checks)} ms`],
    span.retries === 0 ? undefined : [runWords.retries, String(span.retries)],
    span.errorCode === undefined
      ? undefined
      : [
          runWords.error,
          <>
            <span className="mono fail-ink">
              <Foreign text={span.errorCode} />
            </span>
            {end && (
              <span className="soft">
                <Foreign text={textOf(end, 'error_message')} block limit={600} />
              </span>
            )}
          </>,
        ],
    asked && [runWords.asked, <Foreign text={textOf(asked, 'prompt')} block limit={400} />],
    answer && [runWords.answer, <Foreign text={[textOf(answer, 'by'), textOf(answer, 'decision'), textOf(answer, 'reason')].filter(Boolean).join(', ')} block />],
    target === undefined ? undefined : [runWords.target, <span className="mono"><Foreign text={target} /></span>],
    [runWords.callId, <CopyId id={span.callId} />],
  ];
  return <Facts facts={facts.filter((fact) => fact !== undefined)} />;
}

function Arguments({ span }: { span: Span }) {
  const requested = fromPlain(eventOf(span, 'TOOL_CALL_REQUESTED')?.payload.params ?? null);
  const used = fromPlain(eventOf(span, 'TOOL_CALL_STARTED')?.payload.input ?? requested);
  if (used === null) return <p className="soft">{runWords.noArguments}</p>;
  return (
    <div className={styles.stack}>
      <JsonTree value={used} label={runWords.arguments} />
      {requested !== null && !equal(requested, used) && (
        <PartDiff part={runWords.changedArguments} before={stringify(requested, 2)} after={stringify(used, 2)} />
      )}
    </div>
  );
}

/** The outcome, if it is stored; else what the log says of it. */
function StoredResult({ span, runId }: { span: Span; runId: string }) {
  const outcome = useQuery(outcomeQuery(runId));
  if (outcome.isPending) return null;
  if (outcome.error) return <Failure inline error={outcome.error} />;
  if ('result' in outcome.data) return <Summary span={span} note />;
  const { content, artifacts, meta, error } = outcome.data;
  if (error) return <Summary span={span} />;
  return <ResultView content={content} artifacts={artifacts} untrusted={meta.trust === 'untrusted'} origin={typeof meta.origin === 'string' ? meta.origin : undefined} name={span.tool} />;
}

function Summary({ span, note }: { span: Span; note?: boolean }) {
  const completed = eventOf(span, 'TOOL_CALL_COMPLETED');
  const failed = eventOf(span, 'TOOL_CALL_FAILED');
  if (failed) return <Foreign text={`${textOf(failed, 'error_code')}: ${textOf(failed, 'error_message')}`} block />;
  if (!completed) return <p className="soft">{runWords.noResult}</p>;
  const artifact = textOf(completed, 'output_artifact_id');
  return (
    <div className={styles.stack}>
      {note && <p className="soft">{runWords.notKept}</p>}
      <ResultView content={completed.payload.summary ?? null} artifacts={artifact ? [artifact] : []} name={span.tool} />
    </div>
  );
}

function eventOf(span: Span, type: string): Event | undefined {
  return span.events.findLast((event) => event.type === type);
}

function targetOf(asked: Event | undefined): string | undefined {
  const target = asked?.payload.target;
  if (typeof target !== 'object' || target === null || !('summary' in target)) return undefined;
  return typeof target.summary === 'string' ? target.summary : undefined;
}
