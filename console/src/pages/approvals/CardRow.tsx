import { Link } from '@tanstack/react-router';

import type { Card } from '../../api/types';
import { Asker, GistLine } from '../../cards/GistLine';
import { lookOf, rowIcon, serviceOf } from '../../cards/kinds';
import { useNow } from '../../format/clock';
import { formatCountdown, urgency } from '../../format/time';
import { Chip } from '../../ui/Chip';
import { classes } from '../../ui/classes';
import { Foreign } from '../../ui/Foreign';
import { Glyph } from '../../ui/Glyph';
import { UntrustedIcon } from '../../ui/icons';
import { Age } from '../../ui/Time';
import { ToolName } from '../../ui/ToolName';
import { words } from '../../words';
import styles from './approvals.module.css';

/** A card in the list: what it is about, who asks, and how long it waits. */
export function CardRow({ card, selected }: { card: Card; selected: boolean }) {
  return (
    <Link
      to="/approvals/$id"
      params={{ id: card.id }}
      search={true}
      className={classes(styles.row, selected && styles.on)}
      aria-current={selected || undefined}
    >
      <span className={classes(styles.icon, styles[lookOf(card).tone])}>
        <Glyph icon={rowIcon(card)} size={14} />
      </span>
      <div className="grow">
        <div className="row">
          <span className="cut grow">
            {card.kind === 'consent' ? (
              <span className="medium">
                <Foreign text={serviceOf(card)} />
              </span>
            ) : (
              <ToolName name={card.tool_name} />
            )}
          </span>
          <span className="t11 faint num">
            <Age at={card.answered_at ?? card.created_at} />
          </span>
        </div>
        <div className="cut soft">
          <GistLine card={card} />
        </div>
        <div className="row t12 faint">
          <span className="cut">
            <Asker card={card} />
          </span>
          <RowState card={card} />
        </div>
      </div>
    </Link>
  );
}

function RowState({ card }: { card: Card }) {
  const now = useNow(10);
  if (card.status !== 'open') {
    const decision = card.answer?.decision ?? '';
    return <span>{words.cards.decisions[decision] ?? words.cards.statuses[card.status]}</span>;
  }
  const left = card.expires_at - now;
  return (
    <>
      {card.taint && card.taint.length > 0 && (
        <Chip tone="taint" icon={UntrustedIcon}>
          {words.cards.untrusted}
        </Chip>
      )}
      {urgency(left) !== 'calm' && (
        <span className="wait-ink medium">{words.cards.expires(formatCountdown(left))}</span>
      )}
    </>
  );
}
