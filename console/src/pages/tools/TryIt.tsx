import { useQuery } from '@tanstack/react-query';
import { Suspense, useMemo, useState } from 'react';

import { explainQuery } from '../../api/tools';
import { useMe } from '../../api/session';
import type { Tool } from '../../api/types';
import { SchemaForm } from '../../schema/SchemaForm';
import { exampleOf, initialValue } from '../../schema/initial';
import { JsonEditor } from '../../schema/JsonEditor';
import { fromPlain, stringify, type Json } from '../../schema/json';
import { parseIssue, validate } from '../../schema/validate';
import { MODIFIER, useKeys } from '../../shell/keys';
import { Button } from '../../ui/Button';
import { classes } from '../../ui/classes';
import { Foreign } from '../../ui/Foreign';
import { Glyph } from '../../ui/Glyph';
import { KeyIcon, TryIcon } from '../../ui/icons';
import { lazyPart } from '../../ui/lazy-part';
import { Segmented } from '../../ui/Tabs';
import { useRested } from '../../ui/use-rested';
import { schemaWords, toolWords } from '../../words';
import { CallResult } from './CallResult';
import { keepDraft, readDraft } from './drafts';
import { Elsewhere } from './Elsewhere';
import styles from './TryIt.module.css';
import { useCall } from './use-call';

const AppFrame = lazyPart(() => import('../../views/AppFrame'));

const NO_ISSUES: readonly never[] = [];

/** A call of a tool: its arguments at the left, its outcome at the right. */
export function TryIt({ tool }: { tool: Tool }) {
  const me = useMe();
  const schema = tool.input_schema;
  const [value, setValue] = useState<Json>(() => readDraft(tool.name) ?? initialValue(schema, { schema }));
  const [mode, setMode] = useState<'form' | 'json'>('form');
  const [showAll, setShowAll] = useState(false);
  const [broken, setBroken] = useState(false);
  const [armed, setArmed] = useState(false);
  const { call, start, renew } = useCall(tool.name);
  const example = exampleOf(schema);
  const text = stringify(value);
  const issues = useMemo(() => validate(value, schema), [value, schema]);
  const serverIssues = useMemo(() => {
    if (call.state === 'refused') return call.problem.errors.map(parseIssue);
    return call.state === 'ended' ? (call.outcome.error?.issues ?? []).map(parseIssue) : NO_ISSUES;
  }, [call]);
  const verdict = useVerdict(tool, text, issues.length === 0 && !broken);
  const canCall = me.scopes.includes('call');
  const running = call.state === 'running';

  function change(next: Json) {
    setValue(next);
    setArmed(false);
    keepDraft(tool.name, next, schema);
  }
  function press() {
    if (!canCall || running) return;
    setShowAll(true);
    if (broken || issues.length > 0) return;
    if (tool.safety.destructive === true && !armed) {
      setArmed(true);
      return;
    }
    setArmed(false);
    start(text);
  }
  useKeys({ 'mod+Enter': press });
  return (
    <div className={styles.try}>
      <div className={styles.left}>
        <div className={styles.form}>
          <p className={styles.description}>
            <Foreign text={tool.description} block />
          </p>
          {mode === 'form' ? (
            <SchemaForm schema={schema} value={value} onChange={change} showAll={showAll} issues={serverIssues} onBroken={setBroken} />
          ) : (
            <JsonEditor tall label={toolWords.arguments} value={value} onChange={change} onBroken={setBroken} />
          )}
          <p className={styles.note}>
            <Glyph icon={KeyIcon} size={14} />
            <span>{canCall ? toolWords.calledAs(me.user) : toolWords.cannotCall}</span>
          </p>
        </div>
        <footer className={styles.foot}>
          <Button look="primary" size="l" icon={TryIcon} hint={armed ? undefined : `${MODIFIER}↵`} className={classes(armed && styles.armed)} disabled={!canCall || running} onClick={press}>
            {running ? toolWords.calling : armed ? toolWords.callForReal(tool.name) : toolWords.call}
          </Button>
          <span className={classes('grow', styles.verdict)}>{showAll && issues.length > 0 ? toolWords.issues : <Foreign text={verdict} />}</span>
          {example !== undefined && <Button onClick={() => change(fromPlain(example))}>{schemaWords.example}</Button>}
          <Segmented
            label={toolWords.arguments}
            items={[
              { value: 'form', label: toolWords.form },
              { value: 'json', label: toolWords.json },
            ]}
            value={mode}
            onChange={setMode}
          />
        </footer>
      </div>
      <aside className={styles.right} aria-label={toolWords.result}>
        <CallResult call={call} tool={tool.name} onRenew={renew} />
        {tool.app != null && canCall && (
          <Suspense>
            <AppFrame tool={tool} argumentsText={text} outcome={call.state === 'ended' ? call.outcome : undefined} />
          </Suspense>
        )}
        <Elsewhere call={{ tool: tool.name, arguments: value, schema, url: me.server.public_url }} />
      </aside>
    </div>
  );
}

/** What would happen, in a sentence; asked for once the arguments rest. */
function useVerdict(tool: Tool, argumentsText: string, valid: boolean): string {
  const me = useMe();
  const rested = useRested(argumentsText);
  const explains = me.server.features.includes('policy');
  const explained = useQuery(explainQuery(tool.name, rested, explains && valid && me.scopes.includes('call'))).data;
  const { action, reason } = explained ?? tool.verdict;
  if (action === 'allow') return toolWords.willRun;
  return action === 'ask' ? toolWords.willPause(reason) : toolWords.willBeDenied(reason);
}
