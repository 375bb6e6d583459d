import pieces from '@toolpost/approval-card/card/card.module.css';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState, type ReactNode } from 'react';

import { cardsOfToolQuery, runQuery, sourcesQuery, toolQuery } from '../../api/queries';
import { useMe } from '../../api/session';
import type { Card, Outcome } from '../../api/types';
import { formatCount } from '../../format/number';
import { formatDuration } from '../../format/time';
import { Chip } from '../../ui/Chip';
import { classes } from '../../ui/classes';
import { Dot } from '../../ui/Dot';
import { Drawer } from '../../ui/Drawer';
import { Foreign } from '../../ui/Foreign';
import { Glyph } from '../../ui/Glyph';
import {
  ArgumentsIcon,
  AskIcon,
  CloseIcon,
  DoneIcon,
  NextIcon,
  RuleIcon,
  RunIcon,
  WritesIcon,
  type Icon,
} from '../../ui/icons';
import { Age, Moment } from '../../ui/Time';
import { ToolName } from '../../ui/ToolName';
import { words } from '../../words';
import { whyNot, whyOnlyDeny } from '../answering';
import { GistLine } from '../GistLine';
import { shortUser } from '../kinds';
import { SOURCE_TONE } from '../source-tone';
import styles from './card.module.css';
import { CardArguments } from './Details';
import { callsBefore, type CallStep } from './steps';

/** Beside the preview: why one is asked, what the tool is, who can answer, and what came before. */
export function Rail({ card, children }: { card: Card; children: ReactNode }) {
  return (
    <aside className={styles.rail} tabIndex={0} aria-label={words.cards.aboutCall}>
      <Why card={card} />
      <What card={card} />
      <WhoMayAnswer card={card} />
      <section>
        <h3>{words.cards.before}</h3>
        {children}
      </section>
    </aside>
  );
}

type Sheet = 'why' | 'arguments' | 'before';

/** The same as rows that open a sheet, where there is no room beside the preview. */
export function RailRows({ card }: { card: Card }) {
  const [sheet, setSheet] = useState<Sheet>();
  const rows: { sheet: Sheet; icon: Icon; title: string; note?: string }[] = [
    { sheet: 'why', icon: RuleIcon, title: words.cards.why },
    {
      sheet: 'arguments',
      icon: ArgumentsIcon,
      title: words.cards.tabs.arguments,
      note: formatCount(Object.keys(card.arguments).length),
    },
    { sheet: 'before', icon: RunIcon, title: words.cards.before },
  ];
  return (
    <div className={styles.rows}>
      {rows.map((row) => (
        <button key={row.sheet} type="button" onClick={() => setSheet(row.sheet)}>
          <Glyph icon={row.icon} />
          {row.title}
          <span className="end soft num">{row.note}</span>
          <Glyph icon={NextIcon} size={14} className="faint" />
        </button>
      ))}
      <Drawer
        open={sheet !== undefined}
        onClose={() => setSheet(undefined)}
        title={rows.find((row) => row.sheet === sheet)?.title ?? ''}
      >
        {sheet === 'arguments' && <CardArguments card={card} />}
        {sheet === 'before' && <BeforeThis card={card} />}
        {sheet === 'why' && (
          <>
            <Why card={card} />
            <What card={card} />
            <WhoMayAnswer card={card} />
          </>
        )}
      </Drawer>
    </div>
  );
}

function Why({ card }: { card: Card }) {
  const { rule } = card;
  return (
    <section>
      <h3>{words.cards.why}</h3>
      <p className="soft">
        <Foreign text={rule ? words.cards.whyNeeded(rule.reason) : card.prompt} block />
      </p>
      {rule && (
        <>
          <pre className={classes('code', styles.rule)}>
            <Foreign text={rule.text} block />
          </pre>
          <Link to="/settings/$section" params={{ section: 'policy' }} search={{ tool: card.tool_name }} className="link t12">
            {rule.index === 0 ? words.cards.ruleTemplate : words.cards.ruleOf(rule.index, rule.of, rule.file)}
          </Link>
        </>
      )}
    </section>
  );
}

function What({ card }: { card: Card }) {
  const tool = useQuery(toolQuery(card.tool_name)).data;
  const sources = useQuery(sourcesQuery).data ?? [];
  if (!tool) return null;
  const destructive = tool.safety.destructive === true;
  const source = sources.find((one) => one.name === tool.source);
  return (
    <section>
      <h3>{words.cards.what}</h3>
      <dl>
        <Fact name={words.cards.effect}>
          <span className="row wrap">
            <Chip tone={destructive ? 'fail' : tool.side_effects === 'read' || tool.side_effects === 'pure' ? 'ok' : 'run'}>
              {words.effects[tool.side_effects] ?? tool.side_effects}
            </Chip>
            {destructive && <Chip tone="fail">{words.effects.destructive}</Chip>}
          </span>
        </Fact>
        <Fact name={words.retried}>{words.retries[tool.replay] ?? tool.replay}</Fact>
        {tool.source && (
          <Fact name={words.cards.source}>
            <span className="row">
              {source && <Dot tone={SOURCE_TONE[source.state]} />}
              <Foreign text={[tool.source, source?.transport].filter(Boolean).join(', ')} />
            </span>
          </Fact>
        )}
        {tool.pinned_at != null && (
          <Fact name={words.cards.pinned}>
            <Moment at={tool.pinned_at} />
          </Fact>
        )}
        {tool.stats && tool.stats.count > 0 && (
          <Fact name={words.cards.calledBefore}>
            {words.counts.calls(tool.stats.count)}
            {tool.stats.failures > 0 && `, ${words.cards.failedBefore(tool.stats.failures)}`}
          </Fact>
        )}
      </dl>
    </section>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div className={styles.fact}>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function WhoMayAnswer({ card }: { card: Card }) {
  const me = useMe();
  const not = card.viewer ? undefined : whyNot(card, me);
  const onlyDeny = whyOnlyDeny(card);
  const may = card.viewer ? card.viewer.may.length > 0 : not === undefined;
  return (
    <section>
      <h3>{words.cards.who}</h3>
      <p className="soft">
        {card.answerers ? <Foreign text={card.answerers.join(', ')} /> : words.cards.anybody}
        {card.four_eyes && `, ${words.cards.butNotAsker}`}
        {'. '}
        {card.status === 'open' && may && onlyDeny === undefined && <span className="ok-ink medium">{words.cards.youCan}</span>}
      </p>
      {card.status === 'open' && onlyDeny !== undefined && (
        <p>
          {words.cards.youCanDeny} <Foreign text={onlyDeny} />
        </p>
      )}
      {card.passed_on.map((one) => (
        <p key={one.at} className="soft">
          <Foreign text={words.cards.passedOnBy(one.by, one.to)} /> {one.note && <Foreign text={`“${one.note}”`} />}
        </p>
      ))}
      {card.status === 'open' && !may && (
        <p>
          {words.cards.youCannot}{' '}
          {card.viewer?.why_not ? <Foreign text={card.viewer.why_not} /> : not && words.cards.whyNot[not]}
        </p>
      )}
    </section>
  );
}

/** The calls of the run so far; this one is the last. */
export function BeforeThis({ card }: { card: Card }) {
  const run = useQuery(runQuery(card.run_id));
  const steps = callsBefore(run.data?.log ?? [], card);
  if (run.data && steps.length <= 1) return <p className="faint">{words.cards.beforeNone}</p>;
  return (
    <ol>
      {steps.map((step) => (
        <Step key={step.callId} step={step} />
      ))}
    </ol>
  );
}

const STEP = {
  completed: { icon: DoneIcon, look: 'ok' },
  failed: { icon: CloseIcon, look: 'fail' },
  waits: { icon: AskIcon, look: 'wait' },
  runs: { icon: RunIcon, look: '' },
} as const;

function Step({ step }: { step: CallStep }) {
  const { icon, look } = STEP[step.state];
  return (
    <li className={styles.step}>
      <span className={classes(styles.pin, look && styles[look])}>
        <Glyph icon={icon} size={12} />
      </span>
      <div className="grow">
        <div className="cut">
          <ToolName name={step.tool} />
        </div>
        <div className="t12 faint cut">{step.state === 'waits' ? words.cards.waitsHere : <Foreign text={step.note} />}</div>
      </div>
    </li>
  );
}

const DECIDED: Record<string, { icon: Icon; ink: string }> = {
  approve: { icon: DoneIcon, ink: 'ok-ink' },
  modify: { icon: WritesIcon, ink: 'ok-ink' },
  deny: { icon: CloseIcon, ink: 'fail-ink' },
};

/** How an answered call ended, in a word or two. */
function Ended({ outcome }: { outcome: object | null }) {
  const { status, duration_ms: took, error } = (outcome ?? {}) as Partial<Outcome>;
  if (status === 'completed' && took != null) return <>{words.cards.completedIn(formatDuration(took))}</>;
  return error ? <Foreign text={error.error_code} className="fail-ink" /> : null;
}

/** The last three answers for the same tool. */
export function LikeIt({ card }: { card: Card }) {
  const cards = useQuery(cardsOfToolQuery(card.tool_name)).data ?? [];
  const like = cards.filter((one) => one.id !== card.id && one.answer).slice(0, 3);
  if (like.length === 0) return null;
  return (
    <section className={pieces.section}>
      <h3>{words.cards.like}</h3>
      <table className={styles.like}>
        <tbody>
          {like.map((one) => {
            const decision = one.answer?.decision ?? '';
            const { icon, ink } = DECIDED[decision] ?? { icon: DoneIcon, ink: 'soft' };
            return (
              <tr key={one.id}>
                <td className={ink}>
                  <Glyph icon={icon} size={14} />
                </td>
                <td className={styles.gist}>
                  <Link to="/approvals/$id" params={{ id: one.id }} className="cut">
                    <GistLine card={one} strong />
                  </Link>
                </td>
                <td className="soft">
                  {words.cards.decisions[decision] ?? decision} {words.cards.by}{' '}
                  <Foreign text={shortUser(one.answered_by ?? '')} />
                </td>
                <td className={classes('soft', styles.why)}>
                  <span className="cut">{one.answer?.reason ? <Foreign text={`“${one.answer.reason}”`} /> : <Ended outcome={one.outcome} />}</span>
                </td>
                <td className="faint">{one.answered_at !== null && <Age at={one.answered_at} ago />}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </section>
  );
}
