import { useMutation } from '@tanstack/react-query';
import { useSearch } from '@tanstack/react-router';
import { useState, type SubmitEvent } from 'react';

import { api, body } from '../../api/client';
import type { Explanation } from '../../api/types';
import { Button } from '../../ui/Button';
import { Chip } from '../../ui/Chip';
import { classes } from '../../ui/classes';
import { Field, Input, TextArea } from '../../ui/Field';
import { Foreign } from '../../ui/Foreign';
import { Failure } from '../../ui/States';
import { settingsWords, words } from '../../words';
import { argumentsOf } from './explain-arguments';
import styles from './settings.module.css';

const say = settingsWords;
const TONE = { allow: 'ok', ask: 'wait', deny: 'fail' } as const;

/** What the policy says about one call, and why: the rules in order with what each did. Nothing is called. */
export function Explain() {
  const search = useSearch({ from: '/settings/$section' });
  const [tool, setTool] = useState(search.tool ?? '');
  const [text, setText] = useState(search.args ?? '');
  const [user, setUser] = useState('');
  const values = argumentsOf(text);
  const explain = useMutation({
    mutationFn: () =>
      body(
        api.POST('/api/v1/policy/explain', {
          body: {
            tool: tool.trim(),
            ...(values && { arguments: values }),
            ...(user.trim() !== '' && { user: user.trim() }),
          },
        }),
      ),
  });
  function submit(event: SubmitEvent) {
    event.preventDefault();
    if (tool.trim() !== '' && values !== null) explain.mutate();
  }
  return (
    <section>
      <div className={styles.head}>
        <h2>{say.explain}</h2>
      </div>
      <form className={styles.form} onSubmit={submit}>
        <Field label={say.explainTool}>
          {(field) => <Input {...field} value={tool} onChange={(event) => setTool(event.target.value)} />}
        </Field>
        <Field label={say.explainArguments} error={values === null ? words.cards.invalidJson : undefined}>
          {(field) => (
            <TextArea {...field} className="mono" value={text} onChange={(event) => setText(event.target.value)} />
          )}
        </Field>
        <Field label={say.explainUser}>
          {(field) => (
            <Input {...field} placeholder="acme:agent" value={user} onChange={(event) => setUser(event.target.value)} />
          )}
        </Field>
        <div className="row">
          <Button type="submit" look="primary" size="l" disabled={explain.isPending || tool.trim() === ''}>
            {say.explainDo}
          </Button>
        </div>
      </form>
      {explain.error && <Failure error={explain.error} inline />}
      {explain.data && <Verdict explanation={explain.data} />}
    </section>
  );
}

export function Verdict({ explanation }: { explanation: Explanation }) {
  const { action, reason, trace, issues, answerers, four_eyes, preview } = explanation;
  return (
    <div aria-live="polite" className={classes(styles.content, styles.verdict)}>
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
            <span className="mono grow">
              <Foreign text={step.text} />
            </span>
            <span className="soft">
              {say.outcomes[step.outcome]}
              {step.why && <Foreign text={`: ${step.why}`} />}
            </span>
          </li>
        ))}
      </ol>
    </div>
  );
}
