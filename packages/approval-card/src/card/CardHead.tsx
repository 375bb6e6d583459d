import type { ReactNode, RefObject } from 'react';

import { AgentIcon, UntrustedIcon } from '../icons';
import type { PendingAction } from '../types';
import { Foreign } from '../ui/Foreign';
import { Glyph } from '../ui/Glyph';
import { Age } from '../ui/Time';
import { ToolName } from '../ui/ToolName';
import { words } from '../words';
import { serviceOf, shortUser } from './kinds';
import styles from './card.module.css';

interface CardHeadProps {
  action: PendingAction;
  /** What the tool does; only its first line is shown. */
  description?: string;
  /** A link to the run, after the age. */
  run?: ReactNode;
  /** For the focus when another action is shown. */
  heading?: RefObject<HTMLHeadingElement | null>;
}

/** The tool and what it is for, who asks, and untrusted content in the call. */
export function CardHead({ action, description = action.tool?.description, run, heading }: CardHeadProps) {
  return (
    <>
      <h2 ref={heading} tabIndex={-1} className={styles.title}>
        <ToolName name={action.tool_name} large />
      </h2>
      {description && (
        <p className={styles.about}>
          <Foreign text={firstLine(description)} />
        </p>
      )}
      <Who action={action} run={run} />
      <Taint action={action} />
      {action.kind !== 'approval' && (
        <p className={styles.prompt}>
          <Foreign text={action.prompt} block />
        </p>
      )}
    </>
  );
}

function Who({ action, run }: { action: PendingAction; run: ReactNode }) {
  const { caller } = action;
  return (
    <p className={styles.say}>
      <span className={styles.avatar}>
        <Glyph icon={AgentIcon} size={14} />
      </span>
      <span>
        <b>
          <Foreign text={caller?.name ?? shortUser(action.asked_by)} />
        </b>{' '}
        {action.kind === 'consent' ? <Foreign text={words.cards.needsAccount(serviceOf(action))} /> : words.cards.asks},{' '}
        {words.cards.forUser}{' '}
        <b>
          <Foreign text={action.asked_by} />
        </b>
        {' · '}
        <Age at={action.created_at} ago />
        {run && <> · {run}</>}
      </span>
    </p>
  );
}

function Taint({ action: { taint = [] } }: { action: PendingAction }) {
  const [first] = taint;
  if (!first) return null;
  return (
    <div className={styles.taint}>
      <Glyph icon={UntrustedIcon} />
      <div>
        <b>{words.cards.untrustedTitle}</b> <Foreign text={words.cards.untrustedFrom(first.tool, first.origin)} />
      </div>
    </div>
  );
}

function firstLine(text: string): string {
  return text.split('\n')[0] ?? '';
}
