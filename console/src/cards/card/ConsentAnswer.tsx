import pieces from '@toolpost/approval-card/card/card.module.css';
import type { Card } from '../../api/types';
import { useConnect } from '../../accounts/connect';
import { Button } from '../../ui/Button';
import { Foreign } from '../../ui/Foreign';
import { AccountIcon } from '../../ui/icons';
import { words } from '../../words';
import { serviceOf } from '../kinds';

/** Connect the account that a call needs; the sign-in answers the card. */
export function ConsentAnswer({ card, canDeny, onDeny }: { card: Card; canDeny: boolean; onDeny: () => void }) {
  const service = serviceOf(card);
  const provider = typeof card.payload.provider === 'string' ? card.payload.provider : '';
  const { connect, state, problem } = useConnect(provider, `/approvals/${card.id}`);
  return (
    <>
      {problem && (
        <div className={pieces.problem} role="alert">
          <Foreign text={problem.detail} block /> <span className="mono t12">{problem.code}</span>
        </div>
      )}
      {state === 'elsewhere' && <p className="soft">{words.cards.signInElsewhere(service)}</p>}
      <Button look="primary" size="l" icon={AccountIcon} disabled={state === 'starting'} onClick={() => void connect()}>
        {words.cards.connect(service)}
      </Button>
      {canDeny && (
        <Button look="danger" size="l" hint="D" data-answer="deny" onClick={onDeny}>
          {words.cards.refuse}
        </Button>
      )}
    </>
  );
}
