import { useMutation, useQuery } from '@tanstack/react-query';

import { api } from '../../api/client';
import { keys, sessionsQuery } from '../../api/queries';
import { queryClient } from '../../api/query-client';
import type { SessionEntry } from '../../api/types';
import { Button } from '../../ui/Button';
import { Chip } from '../../ui/Chip';
import { Foreign } from '../../ui/Foreign';
import { Empty, Failure, Skeleton } from '../../ui/States';
import { Table, type Column } from '../../ui/Table';
import { Age, Moment } from '../../ui/Time';
import { settingsWords, words } from '../../words';
import { SectionHead } from './SectionHead';

const say = settingsWords;
const titles = say.sessionColumns;

/** Where people are signed in; each session can be ended. */
export function Sessions() {
  const sessions = useQuery(sessionsQuery);
  const end = useMutation({
    mutationFn: (id: string) => api.DELETE('/api/v1/sessions/{session_id}', { params: { path: { session_id: id } } }),
    onSuccess: () => queryClient.invalidateQueries({ queryKey: keys.sessions }),
  });
  if (sessions.isPending) return <Skeleton rows={4} />;
  if (sessions.error) return <Failure error={sessions.error} onRetry={() => void sessions.refetch()} />;
  if (sessions.data.length === 0) return <Empty title={say.noSessions} />;
  const columns: Column<SessionEntry>[] = [
    {
      key: 'user',
      title: titles.user,
      cell: (one) => (
        <span className="row wrap">
          <Foreign text={one.user} className="medium" />
          {one.current && <Chip tone="ok">{say.thisSession}</Chip>}
        </span>
      ),
    },
    { key: 'opened', title: titles.opened, cell: (one) => one.opened_with.kind, wide: true },
    { key: 'created', title: titles.created, cell: (one) => <Age at={one.created_at} ago />, wide: true },
    { key: 'used', title: titles.used, cell: (one) => <Age at={one.last_used_at} ago /> },
    { key: 'expires', title: titles.expires, cell: (one) => <Moment at={one.expires_at} />, wide: true },
    {
      key: 'end',
      title: <span className="visually-hidden">{say.end}</span>,
      cell: (one) => (
        <Button disabled={end.isPending} onClick={() => end.mutate(one.id)}>
          {say.end}
        </Button>
      ),
      right: true,
    },
  ];
  return (
    <>
      <SectionHead section="sessions" />
      {end.error && <Failure error={end.error} inline />}
      <div className="box">
        <Table columns={columns} rows={sessions.data} keyOf={(one) => one.id} label={words.shell.sections.sessions} />
      </div>
    </>
  );
}
