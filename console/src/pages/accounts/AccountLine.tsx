import { useMutation, useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';

import { useConnect } from '../../accounts/connect';
import { api } from '../../api/client';
import { keys, openCardsQuery } from '../../api/queries';
import { queryClient } from '../../api/query-client';
import type { Account } from '../../api/types';
import { Button } from '../../ui/Button';
import { Chip } from '../../ui/Chip';
import { Dialog } from '../../ui/Dialog';
import { Foreign } from '../../ui/Foreign';
import { Glyph } from '../../ui/Glyph';
import { AccountIcon } from '../../ui/icons';
import { Failure } from '../../ui/States';
import { Age, Moment } from '../../ui/Time';
import { words } from '../../words';
import styles from './accounts.module.css';

const { accounts: say } = words;
const TONE = { connected: 'ok', doubtful: 'wait', revoked: 'fail', missing: 'idle' } as const;

/** An account at one service: its state, what it may do, and connecting or disconnecting it. */
export function AccountLine({ account }: { account: Account }) {
  const { connect, state, problem } = useConnect(account.provider, '/accounts');
  const [leaving, setLeaving] = useState(false);
  const waits = state === 'elsewhere' && account.status !== 'connected';
  return (
    <div className={styles.account}>
      <span className={styles.icon}>
        <Glyph icon={AccountIcon} />
      </span>
      <div className="grow">
        <div className="row wrap">
          <Foreign text={account.display_name} className="medium" />
          <Chip tone={TONE[account.status]}>{say.states[account.status]}</Chip>
          <WaitingCalls provider={account.provider} />
        </div>
        <Facts account={account} />
        {account.status === 'doubtful' && <p className={styles.note}>{say.doubtful}</p>}
        {waits && <p className={styles.note}>{say.elsewhere}</p>}
        {problem && <Failure error={problem} inline />}
      </div>
      <div className={styles.actions}>
        {account.status !== 'connected' && (
          <Button look="primary" disabled={state === 'starting'} onClick={() => void connect()}>
            {account.status === 'missing' ? say.connect : say.connectAgain}
          </Button>
        )}
        {account.status !== 'missing' && <Button onClick={() => setLeaving(true)}>{say.disconnect}</Button>}
      </div>
      {leaving && <Disconnect account={account} onClose={() => setLeaving(false)} />}
    </div>
  );
}

function Facts({ account }: { account: Account }) {
  const { scopes, requested_scopes: requested, sources, tools, connected_at: since, expires_at: expires } = account;
  return (
    <div className={styles.facts}>
      {sources.length > 0 && (
        <span>
          {say.usedBy} <Foreign text={sources.join(', ')} />, {words.counts.tools(tools)}
        </span>
      )}
      {account.status === 'missing' && requested.length > 0 && <span>{say.asksFor}</span>}
      {(account.status === 'missing' ? requested : scopes).map((scope) => (
        <Chip key={scope} tone="line">
          <Foreign text={scope} />
        </Chip>
      ))}
      {since !== null && (
        <span>
          {say.since} <Age at={since} ago />
        </span>
      )}
      {expires !== null && (
        <span>
          {say.expires} <Moment at={expires} />
        </span>
      )}
    </div>
  );
}

/** The calls that wait for this account. */
function WaitingCalls({ provider }: { provider: string }) {
  const cards = useQuery(openCardsQuery).data ?? [];
  const waiting = cards.filter((card) => card.kind === 'consent' && card.payload.provider === provider);
  const [first] = waiting;
  if (!first) return null;
  return (
    <Link to="/approvals/$id" params={{ id: first.id }} className="link t12">
      {say.waiting(waiting.length)}
    </Link>
  );
}

function Disconnect({ account, onClose }: { account: Account; onClose: () => void }) {
  const disconnect = useMutation({
    mutationFn: () =>
      api.DELETE('/api/v1/accounts/{service}', { params: { path: { service: account.provider } } }),
    onSuccess: () => {
      void queryClient.invalidateQueries({ queryKey: keys.accounts });
      onClose();
    },
  });
  return (
    <Dialog
      open
      onClose={onClose}
      title={say.disconnectSure(account.display_name)}
      foot={
        <>
          <Button look="danger" size="l" disabled={disconnect.isPending} onClick={() => disconnect.mutate()}>
            {say.disconnect}
          </Button>
          <Button look="ghost" size="l" onClick={onClose}>
            {words.cancel}
          </Button>
        </>
      }
    >
      <p className="soft">{say.disconnectText}</p>
      {disconnect.error && <Failure error={disconnect.error} inline />}
    </Dialog>
  );
}
