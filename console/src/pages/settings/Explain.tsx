import { useMutation, useQuery } from '@tanstack/react-query';
import { useSearch } from '@tanstack/react-router';
import { Suspense, useId, useState, type SubmitEvent } from 'react';

import { requestTo, send } from '../../api/client';
import { toolQuery, toolSearchQuery } from '../../api/queries';
import type { Explanation } from '../../api/types';
import { isObject, stringify, type Json } from '../../schema/json';
import { tryParse } from '../../schema/parse';
import { Button } from '../../ui/Button';
import { Chip } from '../../ui/Chip';
import { classes } from '../../ui/classes';
import { Field, Input } from '../../ui/Field';
import { Foreign } from '../../ui/Foreign';
import { lazyPart } from '../../ui/lazy-part';
import { Failure } from '../../ui/States';
import { settingsWords, words } from '../../words';
import styles from './settings.module.css';

const ExplainArguments = lazyPart(() => import('./ExplainArguments'));

const say = settingsWords;
const TONE = { allow: 'ok', ask: 'wait', deny: 'fail' } as const;

/** What the policy says about one call, and why: the rules in order with what each did. Nothing is called. */
export function Explain() {
  const search = useSearch({ from: '/settings/$section' });
  const [tool, setTool] = useState(search.tool ?? '');
  const [values, setValues] = useState(() => argumentsOf(search.args ?? ''));
  const [broken, setBroken] = useState(false);
  const [user, setUser] = useState('');
  const found = useQuery({ ...toolQuery(tool.trim()), enabled: tool.trim() !== '', retry: false }).data;
  const explain = useMutation({ mutationFn: () => explained(tool.trim(), values, user.trim()) });
  function submit(event: SubmitEvent) {
    event.preventDefault();
    if (tool.trim() !== '' && !broken) explain.mutate();
  }
  return (
    <section className={styles.explain}>
      <form className={styles.form} onSubmit={submit}>
        <div>
          <h2>{say.explain}</h2>
          <p className="soft">{say.explainHint}</p>
        </div>
        <ToolField
          value={tool}
          onChange={(next) => {
            setTool(next);
            setValues(undefined);
          }}
        />
        {found && (
          <Suspense>
            <ExplainArguments key={found.name} schema={found.input_schema} value={values} onChange={setValues} onBroken={setBroken} />
          </Suspense>
        )}
        <Field label={say.explainUser}>
          {(field) => (
            <Input {...field} placeholder="acme:agent" value={user} onChange={(event) => setUser(event.target.value)} />
          )}
        </Field>
        <div className="row">
          <Button type="submit" look="primary" size="l" disabled={explain.isPending || broken || tool.trim() === ''}>
            {say.explainDo}
          </Button>
        </div>
      </form>
      <div className={styles.verdict}>
        {explain.error && <Failure error={explain.error} inline />}
        {explain.data ? <Verdict explanation={explain.data} /> : <p className="faint">{say.explainEmpty}</p>}
      </div>
    </section>
  );
}

/** The name of a tool, with those that fit what was typed. */
function ToolField({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  const list = useId();
  const text = value.trim();
  const tools = useQuery({ ...toolSearchQuery(text), enabled: text !== '' }).data ?? [];
  return (
    <Field label={say.explainTool}>
      {(field) => (
        <>
          <Input {...field} className="mono" list={list} value={value} onChange={(event) => onChange(event.target.value)} />
          <datalist id={list}>
            {tools.map((tool) => (
              <option key={tool.name} value={tool.name} />
            ))}
          </datalist>
        </>
      )}
    </Field>
  );
}

export function Verdict({ explanation }: { explanation: Explanation }) {
  const { action, reason, trace, issues, answerers, four_eyes, preview } = explanation;
  return (
    <div aria-live="polite" className={styles.content}>
      <p className="row wrap">
        <Chip tone={TONE[action]} large>
          {say.verdicts[action]}
        </Chip>
        <Foreign text={reason} />
      </p>
      {answerers && (
        <p className="soft">
          {words.cards.who}: <Foreign text={answerers.join(', ')} />
          {four_eyes && `, ${words.cards.butNotAsker}`}
        </p>
      )}
      {issues.map((issue) => (
        <p key={issue} className="fail-ink">
          <Foreign text={issue} />
        </p>
      ))}
      {preview && (
        <figure>
          <figcaption className="soft">{words.cards.wouldDo}</figcaption>
          <pre className="code">
            <Foreign text={preview.text} block />
          </pre>
        </figure>
      )}
      <ol className="box">
        {trace.map((step) => (
          <li
            key={step.rule}
            className={classes(
              styles.trace,
              step.outcome === 'decides' && styles.decides,
              step.outcome === 'not_reached' && styles.quiet,
            )}
          >
            <span className="num faint">{step.rule === 0 ? '–' : step.rule}</span>
            <span className="grow">
              <Foreign text={step.text} className="mono" />
              {step.why && (
                <span className={styles.stepWhy}>
                  <Foreign text={step.why} />
                </span>
              )}
            </span>
            <span className={step.outcome === 'decides' ? 'bold' : 'soft'}>{say.outcomes[step.outcome]}</span>
          </li>
        ))}
      </ol>
    </div>
  );
}

/** Ask for the verdict; numbers of the arguments are sent as they were written. */
async function explained(tool: string, values: Json | undefined, user: string): Promise<Explanation> {
  const parts = [
    `"tool":${JSON.stringify(tool)}`,
    ...(values === undefined ? [] : [`"arguments":${stringify(values)}`]),
    ...(user === '' ? [] : [`"user":${JSON.stringify(user)}`]),
  ];
  const headers = { 'Content-Type': 'application/json' };
  const request = requestTo('/api/v1/policy/explain', { method: 'POST', headers, body: `{${parts.join(',')}}` });
  return (await (await send(request)).json()) as Explanation;
}

/** The arguments in an address; undefined if it has none. */
function argumentsOf(text: string): Json | undefined {
  const parsed = tryParse(text);
  return 'value' in parsed && isObject(parsed.value) ? parsed.value : undefined;
}
