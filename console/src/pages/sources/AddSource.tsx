import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';

import { keys } from '../../api/queries';
import { addSource, detectSource, planImport, planSource, presetsQuery, trySource, type DetectedSource, type NewSource, type Preset, type SourcePlan, type TriedSource } from '../../api/sources';
import { Button } from '../../ui/Button';
import { Chip } from '../../ui/Chip';
import { CopyBlock } from '../../ui/Copy';
import { Drawer } from '../../ui/Drawer';
import { Field, Input, TextArea } from '../../ui/Field';
import { Foreign } from '../../ui/Foreign';
import { visible } from '../../ui/foreign-text';
import { DoneIcon, UnknownIcon } from '../../ui/icons';
import { Failure } from '../../ui/States';
import { Segmented } from '../../ui/Tabs';
import { toast } from '../../ui/Toast';
import { ToolName } from '../../ui/ToolName';
import { sourceWords } from '../../words';
import { effectLook, verdictLook } from '../tools/effects';
import styles from './AddSource.module.css';

type Tab = 'what' | 'presets' | 'file';
type Found = Record<string, unknown>;

/** Adds a source in five steps of one form: what, found, name and credential, its tools, and what is written. */
export function AddSource({ open, onClose }: { open: boolean; onClose: () => void }) {
  return (
    <Drawer open={open} onClose={onClose} title={sourceWords.add}>
      {open && <Steps onDone={onClose} />}
    </Drawer>
  );
}

function Steps({ onDone }: { onDone: () => void }) {
  const [tab, setTab] = useState<Tab>('what');
  const [what, setWhat] = useState('');
  const choose = (chosen: string) => {
    setWhat(chosen);
    setTab('what');
  };
  return (
    <div className={styles.steps}>
      <Segmented<Tab>
        label={sourceWords.add}
        items={(['what', 'presets', 'file'] as const).map((value) => ({ value, label: sourceWords.tabs[value] }))}
        value={tab}
        onChange={setTab}
      />
      {tab === 'what' && <FromText key={what} first={what} onDone={onDone} />}
      {tab === 'presets' && <Presets onChoose={choose} />}
      {tab === 'file' && <FromFile onDone={onDone} />}
    </div>
  );
}

// ---------------------------------------------------------------- what, and what was found

function FromText({ first, onDone }: { first: string; onDone: () => void }) {
  const [what, setWhat] = useState(first);
  const [header, setHeader] = useState('');
  const [name, setName] = useState('');
  const isUrl = /^https?:\/\//i.test(what.trim());
  const detect = useMutation({ mutationFn: detectSource });
  const plan = useMutation({ mutationFn: planSource });
  const busy = detect.isPending || plan.isPending;
  const found = detect.data;

  async function look() {
    const source: NewSource = { what: what.trim(), ...headersOf(header), ...(name.trim() !== '' && { name: name.trim() }) };
    if (source.what === '') return;
    plan.reset();
    if (isUrl && (await detect.mutateAsync(source)).status !== 'recognized') return;
    await plan.mutateAsync(source);
  }
  function change(next: string) {
    setWhat(next);
    detect.reset();
    plan.reset();
  }
  return (
    <form
      className={styles.steps}
      onSubmit={(event) => {
        event.preventDefault();
        // What goes wrong is shown below, from the state of the requests.
        look().catch(() => undefined);
      }}
    >
      <Field label={sourceWords.what} hint={what.trim() === '' ? undefined : isUrl ? sourceWords.looksLike.url : /\s|\//.test(what.trim()) ? sourceWords.looksLike.command : sourceWords.looksLike.preset}>
        {(field) => <Input {...field} className="mono" autoFocus value={what} placeholder={sourceWords.whatPlaceholder} onChange={(event) => change(event.target.value)} />}
      </Field>
      {found && <Detected found={found} />}
      {isUrl && (found?.status === 'guarded' || header !== '') && (
        <Field label={sourceWords.header} hint={sourceWords.headerHint}>
          {(field) => <Input {...field} type="password" value={header} placeholder="Authorization: Bearer …" onChange={(event) => setHeader(event.target.value)} />}
        </Field>
      )}
      {plan.data && (
        <Field label={sourceWords.name} error={plan.data.exists ? sourceWords.exists : undefined}>
          {(field) => <Input {...field} className="mono" value={name || nameOf(plan.data)} onChange={(event) => setName(event.target.value)} onBlur={() => void look().catch(() => undefined)} />}
        </Field>
      )}
      {(detect.error ?? plan.error) && <Failure inline error={detect.error ?? plan.error} />}
      {!plan.data && (
        <div className="row">
          <Button type="submit" look="primary" disabled={busy || what.trim() === ''}>
            {detect.isPending ? sourceWords.detecting : plan.isPending ? sourceWords.planning : sourceWords.plan}
          </Button>
          <span className="faint end">{sourceWords.nothingStarted}</span>
        </div>
      )}
      {plan.data && <Planned key={plan.data.yaml} plan={plan.data} onDone={onDone} />}
    </form>
  );
}

function Detected({ found }: { found: DetectedSource }) {
  const recognized = found.status === 'recognized';
  return (
    <section className={recognized ? styles.found : styles.notFound}>
      <div className="row wrap">
        <Chip tone={recognized ? 'ok' : 'wait'} icon={recognized ? DoneIcon : UnknownIcon}>
          <Foreign text={found.kind ?? found.status} limit={40} />
        </Chip>
        {found.title !== null && (
          <b>
            <Foreign text={found.title} limit={80} />
          </b>
        )}
      </div>
      <p className="soft">
        <Foreign text={found.because} block />
      </p>
      <ul className="mono">
        {found.tried.map(({ url, answer }, index) => (
          <li key={url} className="row wrap">
            <Foreign text={url} limit={160} />
            <span className={recognized && index === found.tried.length - 1 ? 'end ok-ink' : 'end faint'}>
              <Foreign text={answer} limit={60} />
            </span>
          </li>
        ))}
      </ul>
      <p className="faint">{sourceWords.triedHint}</p>
      {found.next.length > 0 && (
        <ul className={styles.next}>
          {found.next.map((one) => (
            <li key={one}>
              <Foreign text={one} />
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

// ---------------------------------------------------------------- the plan: command, variables, tools, lines

function Planned({ plan, onDone }: { plan: SourcePlan; onDone: () => void }) {
  const [values, setValues] = useState<Record<string, string>>({});
  const tried = useMutation({ mutationFn: () => trySource(plan.source, given(values)) });
  return (
    <div className={styles.steps}>
      {plan.command && <Command command={plan.command} />}
      {plan.variables.length > 0 && (
        <section className={styles.section}>
          <h3>{sourceWords.variables}</h3>
          {plan.variables.map((variable) => (
            <Field key={variable.name} label={<span className="mono">{variable.name}</span>} hint={variable.set ? sourceWords.set : `${sourceWords.unset}. ${sourceWords.valueHint}`}>
              {(field) =>
                variable.set ? (
                  <output id={field.id} className="soft">
                    <Foreign text={variable.stands_for ?? ''} />
                  </output>
                ) : (
                  <Input {...field} type="password" value={values[variable.name] ?? ''} aria-label={sourceWords.value(variable.name)} onChange={(event) => setValues({ ...values, [variable.name]: event.target.value })} />
                )
              }
            </Field>
          ))}
          <p className="faint t12">{sourceWords.variablesHint}</p>
        </section>
      )}
      <Texts title={sourceWords.missing} texts={plan.missing} />
      <Texts title={sourceWords.notes} texts={plan.notes} />
      <div className="row">
        <Button disabled={tried.isPending} onClick={() => tried.mutate()}>
          {tried.isPending ? sourceWords.trying : plan.command ? sourceWords.connectOnce : sourceWords.connectUrl}
        </Button>
      </div>
      {tried.error && <Failure inline error={tried.error} />}
      {tried.data && <Tools tried={tried.data} />}
      <Written sources={[plan.source]} yaml={plan.yaml} disabled={plan.exists} onDone={onDone} started={tried.isSuccess || tried.isError} />
    </div>
  );
}

/** The exact program, before anything is started. */
function Command({ command }: { command: NonNullable<SourcePlan['command']> }) {
  return (
    <section className={styles.section}>
      <h3>{sourceWords.command}</h3>
      <p className={styles.argv}>
        {command.argv.map((word, index) => (
          <code key={index}>
            <Foreign text={word} limit={200} />
          </code>
        ))}
      </p>
      <p className="soft t12">
        {sourceWords.consoleCommandHint} {command.cwd !== null && <Foreign text={`${sourceWords.cwd}: ${command.cwd}`} />} {command.env_names.length > 0 && <Foreign text={command.env_names.join(', ')} />}
      </p>
    </section>
  );
}

function Tools({ tried }: { tried: TriedSource }) {
  return (
    <section className={styles.section}>
      <div className="row">
        <h3>{sourceWords.effects}</h3>
        <span className="faint end num">{tried.tools.length}</span>
      </div>
      <ul className={styles.tools}>
        {tried.tools.map((tool) => {
          const effect = effectLook(tool);
          const verdict = verdictLook(tool.verdict.action);
          return (
            <li key={tool.name}>
              <span className="grow">
                <ToolName name={tool.name} />
              </span>
              <Chip tone={effect.tone} title={visible(tool.claims)}>
                {effect.word}
                {tool.said_by === 'source' && ` (${sourceWords.claims})`}
              </Chip>
              <span className="soft" title={visible(tool.verdict.reason)}>
                {verdict.word}
              </span>
            </li>
          );
        })}
      </ul>
      <Texts title={sourceWords.warnings} texts={tried.problems} />
    </section>
  );
}

interface WrittenProps {
  sources: Found[];
  yaml: string;
  disabled: boolean;
  started: boolean;
  onDone: () => void;
}

function Written({ sources, yaml, disabled, started, onDone }: WrittenProps) {
  const cache = useQueryClient();
  const add = useMutation({
    mutationFn: async (persist: boolean) => {
      for (const source of sources) await addSource(source, persist);
    },
    onSuccess: () => {
      void cache.invalidateQueries({ queryKey: keys.sources });
      toast(sources.map(({ name }) => String(name)).join(', '), sourceWords.connecting);
      onDone();
    },
  });
  const stopped = disabled || add.isPending || sources.length === 0;
  return (
    <section className={styles.section}>
      <div className="row">
        <h3>{sourceWords.writesTo}</h3>
        <span className="faint end t12">{sourceWords.nothingElse}</span>
      </div>
      <CopyBlock text={yaml} />
      {add.error && <Failure inline error={add.error} />}
      <div className={styles.foot}>
        <Button look="primary" size="l" disabled={stopped} onClick={() => add.mutate(true)}>
          {sourceWords.addIt}
        </Button>
        <Button size="l" disabled={stopped} onClick={() => add.mutate(false)}>
          {sourceWords.untilRestart}
        </Button>
        {!started && <span className="faint end t12">{sourceWords.nothingStarted}</span>}
      </div>
    </section>
  );
}

// ---------------------------------------------------------------- presets and files

function Presets({ onChoose }: { onChoose: (name: string) => void }) {
  const presets = useQuery(presetsQuery);
  if (presets.error) return <Failure inline error={presets.error} />;
  return (
    <ul className={styles.presets}>
      {presets.data?.map((preset) => (
        <li key={preset.name}>
          <button type="button" onClick={() => onChoose(preset.name)}>
            <b>{preset.name}</b> <PresetFacts preset={preset} />
          </button>
        </li>
      ))}
    </ul>
  );
}

function PresetFacts({ preset }: { preset: Preset }) {
  return (
    <>
      <span className="soft">{preset.description}</span>
      <span className="mono faint">
        {preset.package}
        {preset.version !== null && `@${preset.version}`}
        {preset.reads.length > 0 && ` · ${sourceWords.presetReads} ${preset.reads.map((variable) => variable.name).join(', ')}`}
      </span>
    </>
  );
}

function FromFile({ onDone }: { onDone: () => void }) {
  const [text, setText] = useState('');
  const plan = useMutation({ mutationFn: planImport });
  return (
    <div className={styles.steps}>
      <Field label={sourceWords.fileLabel} hint={sourceWords.fileHint}>
        {(field) => (
          <TextArea
            {...field}
            className="mono"
            rows={8}
            value={text}
            onChange={(event) => {
              setText(event.target.value);
              plan.reset();
            }}
          />
        )}
      </Field>
      {plan.error && <Failure inline error={plan.error} />}
      {!plan.data && (
        <div className="row">
          <Button look="primary" disabled={plan.isPending || text.trim() === ''} onClick={() => plan.mutate(text)}>
            {sourceWords.plan}
          </Button>
          <span className="faint end">{sourceWords.nothingStarted}</span>
        </div>
      )}
      {plan.data && (
        <>
          <Texts title={sourceWords.notes} texts={[...plan.data.notes, ...plan.data.skipped]} />
          <Texts title={sourceWords.variables} texts={plan.data.variables.filter((one) => !one.set).map((one) => one.name)} />
          <Written sources={plan.data.sources.map((one) => one.source)} yaml={plan.data.yaml} disabled={false} started={false} onDone={onDone} />
        </>
      )}
    </div>
  );
}

function Texts({ title, texts }: { title: string; texts: readonly string[] }) {
  if (texts.length === 0) return null;
  return (
    <section className={styles.section}>
      <h3>{title}</h3>
      <ul className={styles.next}>
        {texts.map((text) => (
          <li key={text}>
            <Foreign text={text} />
          </li>
        ))}
      </ul>
    </section>
  );
}

function nameOf({ source }: SourcePlan): string {
  return typeof source.name === 'string' ? source.name : '';
}

/** A header as it is typed, `NAME: VALUE`. */
function headersOf(text: string): { headers?: Record<string, string> } {
  const colon = text.indexOf(':');
  return colon < 1 ? {} : { headers: { [text.slice(0, colon).trim()]: text.slice(colon + 1).trim() } };
}

function given(values: Record<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== ''));
}
