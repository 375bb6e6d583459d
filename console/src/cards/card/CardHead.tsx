import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useEffect, useRef } from 'react';

import { toolQuery } from '../../api/queries';
import type { Card } from '../../api/types';
import { Foreign } from '../../ui/Foreign';
import { Glyph } from '../../ui/Glyph';
import { AgentIcon, UntrustedIcon } from '../../ui/icons';
import { Age } from '../../ui/Time';
import { ToolName } from '../../ui/ToolName';
import { words } from '../../words';
import { serviceOf, shortUser } from '../kinds';
import styles from './card.module.css';

/** The tool and what it is for, who asks, and untrusted content in the call. */
export function CardHead({ card }: { card: Card }) {
  const heading = useRef<HTMLHeadingElement>(null);
  const description = useQuery(toolQuery(card.tool_name)).data?.description ?? card.tool?.description;
  useEffect(() => {
    heading.current?.focus({ preventScroll: true });
  }, [card.id]);
  return (
    <>
      <h2 ref={heading} tabIndex={-1} className={styles.title}>
        <ToolName name={card.tool_name} large />
      </h2>
      {description && (
        <p className={styles.about}>
          <Foreign text={firstLine(description)} />
        </p>
      )}
      <Who card={card} />
      <Taint card={card} />
      {card.kind !== 'approval' && (
        <p className={styles.prompt}>
          <Foreign text={card.prompt} block />
        </p>
      )}
    </>
  );
}

function Who({ card }: { card: Card }) {
  return (
    <p className={styles.say}>
      <span className={styles.avatar}>
        <Glyph icon={AgentIcon} size={14} />
      </span>
      <span>
        <b>
          <Foreign text={card.caller?.name ?? shortUser(card.asked_by)} />
        </b>{' '}
        {card.kind === 'consent' ? words.cards.needsAccount(serviceOf(card)) : words.cards.asks}, {words.cards.forUser}{' '}
        <b>
          <Foreign text={card.asked_by} />
        </b>
        {card.caller?.kind === 'key' && (
          <>
            , {words.cards.byKey} <Foreign text={card.caller.name} className="mono" />
          </>
        )}
        {' · '}
        <Age at={card.created_at} ago />
        {' · '}
        <Link to="/runs/$id" params={{ id: card.run_id }} className="link" title={card.run_id}>
          {shortId(card.run_id)}
        </Link>
      </span>
    </p>
  );
}

function Taint({ card: { taint = [] } }: { card: Card }) {
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

/** Identifiers are long; their first characters tell one from another on a page. */
export function shortId(id: string): string {
  return id.length > 14 ? id.slice(0, 12) : id;
}

function firstLine(text: string): string {
  return text.split('\n')[0] ?? '';
}
