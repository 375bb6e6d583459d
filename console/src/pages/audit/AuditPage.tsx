import { useQuery } from '@tanstack/react-query';

import { auditQuery } from '../../api/audit';
import { EventLine } from '../../events/EventLine';
import { Page } from '../../shell/Page';
import { List } from '../../ui/List';
import { Empty, Failure, Skeleton } from '../../ui/States';
import { words } from '../../words';
import { auditWords } from '../../words-audit';
import styles from './audit.module.css';

/** All events of the tenant, newest first. */
export default function AuditPage() {
  const events = useQuery(auditQuery);
  return (
    <Page title={words.shell.pages.audit} note={events.data && auditWords.count(events.data.length)}>
      {events.isPending && <Skeleton />}
      {events.error && <Failure error={events.error} onRetry={() => void events.refetch()} />}
      {events.data?.length === 0 && <Empty title={auditWords.empty} />}
      {events.data && events.data.length > 0 && (
        <div className={styles.list}>
          <List
            items={events.data}
            label={auditWords.list}
            keyOf={(event) => String(event.id)}
            rowHeight={28}
            render={(event) => <EventLine event={event} />}
          />
        </div>
      )}
    </Page>
  );
}
