import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';

import type { Tool } from '../../api/types';
import { Chip } from '../../ui/Chip';
import { Facts } from '../../ui/Facts';
import { Foreign } from '../../ui/Foreign';
import { toolWords, words } from '../../words';
import { effectLook, verdictLook } from './effects';
import { PartDiff } from './PartDiff';
import styles from './Tabs.module.css';

/** What is known of the effects of a tool, who said so, and what the policy makes of it. */
export function SafetyTab({ tool }: { tool: Tool }) {
  const effect = effectLook({ side_effects: tool.side_effects, destructive: tool.safety.destructive });
  const verdict = verdictLook(tool.verdict.action);
  const facts: [string, ReactNode][] = [
    [
      toolWords.effect,
      <>
        <Chip tone={effect.tone} icon={effect.icon}>
          {effect.word}
        </Chip>{' '}
        <span className="soft">{toolWords.declaredBy[tool.said_by]}</span>
      </>,
    ],
    [toolWords.isDestructive, yesNo(tool.safety.destructive)],
    [words.retried, words.retries[tool.replay]],
    [toolWords.touches, touches(tool)],
    [toolWords.openWorld, yesNo(tool.safety.open_world)],
  ];
  const policy: [string, ReactNode][] = [
    [
      toolWords.verdict,
      <>
        <Chip tone={verdict.tone} icon={verdict.icon}>
          {verdict.word}
        </Chip>{' '}
        <span className="soft">
          <Foreign text={tool.verdict.reason} block />
        </span>
      </>,
    ],
    [toolWords.decides, tool.verdict.rule ? toolWords.rule(tool.verdict.rule) : toolWords.template],
    [
      toolWords.answerers,
      <>
        <Foreign text={tool.verdict.answerers?.join(', ') ?? toolWords.anyone} />
        {tool.verdict.four_eyes && `, ${toolWords.fourEyes}`}
      </>,
    ],
  ];
  const definition: [string, ReactNode][] = [
    [toolWords.source, !tool.source ? '–' : <SourceLink name={tool.source} />],
    [toolWords.target, tool.target ? <span className="mono"><Foreign text={tool.target.summary} /></span> : '–'],
    [toolWords.content, tool.trust === null ? toolWords.ownContent : `${toolWords.trust[tool.trust]}${tool.origin ? `, ${tool.origin}` : ''}`],
    [toolWords.output, toolWords.outputs[tool.outputs]],
    [toolWords.pinned, tool.pinned_hash ? <span className="mono"><Foreign text={tool.pinned_hash} limit={80} /></span> : toolWords.notPinned],
    [toolWords.modelName, <span className="mono"><Foreign text={tool.model_name} /></span>],
  ];
  return (
    <div className={styles.padded}>
      {tool.held && <Held held={tool.held} />}
      <Section title={toolWords.whatItDoes} facts={facts} />
      <Section title={toolWords.verdict} facts={policy} />
      <Section title={toolWords.definition} facts={definition} />
    </div>
  );
}

function Held({ held }: { held: NonNullable<Tool['held']> }) {
  return (
    <section className={styles.held}>
      <h3>{held.new ? toolWords.newDefinition : toolWords.held}</h3>
      <p className="soft">
        <Foreign text={held.reason} block /> {held.blocks ? toolWords.heldBlocks : toolWords.heldWarns}
      </p>
      {held.changes.map((change) => (
        <PartDiff key={change.part} {...change} />
      ))}
    </section>
  );
}

function Section({ title, facts }: { title: string; facts: [string, ReactNode][] }) {
  return (
    <section className={styles.section}>
      <h3>{title}</h3>
      <Facts facts={facts} />
    </section>
  );
}

function SourceLink({ name }: { name: string }) {
  return (
    <Link to="/sources/$name" params={{ name }} className="link">
      <Foreign text={name} />
    </Link>
  );
}

function touches({ safety }: Tool): string {
  const places = [safety.network && toolWords.network, safety.file && toolWords.file].filter(Boolean);
  return places.length > 0 ? places.join(', ') : '–';
}

function yesNo(value: boolean | null): string {
  if (value === null) return toolWords.unknownDestructive;
  return value ? toolWords.yes : toolWords.no;
}
