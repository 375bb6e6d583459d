import { useMutation, useQuery } from '@tanstack/react-query';
import { useState } from 'react';

import { api } from '../../api/client';
import { callerKeysQuery, keys } from '../../api/queries';
import { queryClient } from '../../api/query-client';
import type { CallerKey } from '../../api/types';
import { shortUser } from '../../cards/kinds';
import { Button, IconButton } from '../../ui/Button';
import { Chip } from '../../ui/Chip';
import { Dialog } from '../../ui/Dialog';
import { Foreign } from '../../ui/Foreign';
import { AddIcon, RemoveIcon } from '../../ui/icons';
import { Empty, Failure, Skeleton } from '../../ui/States';
import { Table, type Column } from '../../ui/Table';
import { Age, Moment } from '../../ui/Time';
import { settingsWords, words } from '../../words';
import { CreateKey } from './CreateKey';
import { SectionHead } from './SectionHead';

const say = settingsWords;

/** The keys by which agents and people reach this gateway. */
export function Keys() {
  const callerKeys = useQuery(callerKeysQuery);
  const [creating, setCreating] = useState(false);
  const [revoking, setRevoking] = useState<CallerKey>();
  if (callerKeys.isPending) return <Skeleton rows={4} />;
  if (callerKeys.error) return <Failure error={callerKeys.error} onRetry={() => void callerKeys.refetch()} />;
  return (
    <>
      <SectionHead
        section="keys"
        actions={
          <Button look="primary" icon={AddIcon} onClick={() => setCreating(true)}>
            {say.newKey}
          </Button>
        }
      />
      {callerKeys.data.length === 0 ? (
        <Empty title={say.noKeys}>{say.noKeysMore}</Empty>
      ) : (
        <div className="box">
          <Table columns={columns(setRevoking)} rows={callerKeys.data} keyOf={(key) => key.id} label={words.shell.sections.keys} />
        </div>
      )}
      <CreateKey open={creating} onClose={() => setCreating(false)} />
      {revoking && <Revoke caller={revoking} onClose={() => setRevoking(undefined)} />}
    </>
  );
}

function columns(onRevoke: (key: CallerKey) => void): Column<CallerKey>[] {
  const titles = say.keyColumns;
  return [
    { key: 'name', title: titles.name, cell: (key) => <Foreign text={key.name} className="medium" /> },
    { key: 'user', title: titles.user, cell: (key) => <Foreign text={key.user} />, wide: true },
    {
      key: 'scopes',
      title: titles.scopes,
      cell: (key) => (
        <span className="row wrap">
          {key.scopes.map((scope) => (
            <Chip key={scope} tone="line">
              {scope}
            </Chip>
          ))}
          {key.person && <Chip>{say.personal}</Chip>}
          {key.interactive && <Chip>{say.interactive}</Chip>}
        </span>
      ),
    },
    {
      key: 'created',
      title: titles.created,
      cell: (key) => (
        <>
          <Age at={key.created_at} ago /> <span className="soft">{words.cards.by} <Foreign text={shortUser(key.created_by)} /></span>
        </>
      ),
      wide: true,
    },
    {
      key: 'expires',
      title: titles.expires,
      cell: (key) => (key.expires_at === null ? say.never : <Moment at={key.expires_at} />),
      wide: true,
    },
    {
      key: 'used',
      title: titles.used,
      cell: (key) => (key.last_used_at === null ? say.never : <Age at={key.last_used_at} ago />),
      wide: true,
    },
    {
      key: 'revoke',
      title: <span className="visually-hidden">{say.revoke}</span>,
      cell: (key) => <IconButton icon={RemoveIcon} label={say.revoke} onClick={() => onRevoke(key)} />,
      right: true,
    },
  ];
}

function Revoke({ caller, onClose }: { caller: CallerKey; onClose: () => void }) {
  const revoke = useMutation({
    mutationFn: () => api.DELETE('/api/v1/keys/{key_id}', { params: { path: { key_id: caller.id } } }),
    onSuccess: () => {
      void queryClient.invalidateQueries({ queryKey: keys.callerKeys });
      onClose();
    },
  });
  return (
    <Dialog
      open
      onClose={onClose}
      title={say.revokeSure(caller.name)}
      foot={
        <>
          <Button look="danger" size="l" disabled={revoke.isPending} onClick={() => revoke.mutate()}>
            {say.revoke}
          </Button>
          <Button look="ghost" size="l" onClick={onClose}>
            {words.cancel}
          </Button>
        </>
      }
    >
      <p className="soft">{say.revokeText}</p>
      {revoke.error && <Failure error={revoke.error} inline />}
    </Dialog>
  );
}
