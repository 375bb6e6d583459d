import { Receipt } from '@toolpost/approval-card/card/Receipt';
import { Link } from '@tanstack/react-router';

import type { Card } from '../../api/types';
import { words } from '../../words';
import { usePhase } from '../answers';

/** The receipt of a closed card, with links to the run and to what the call asks next. */
export function Outcome({ card }: { card: Card }) {
  const phase = usePhase(card.id);
  return (
    <Receipt
      action={card}
      outcome={phase.at === 'ended' ? phase.outcome : undefined}
      run={
        <Link to="/runs/$id" params={{ id: card.run_id }} className="link">
          {words.cards.openRun}
        </Link>
      }
      next={(id) => (
        <Link to="/approvals/$id" params={{ id }} className="link">
          {words.cards.openNext}
        </Link>
      )}
    />
  );
}
