import { useQuery } from '@tanstack/react-query';

import { accountsQuery } from '../../api/queries';
import { Page } from '../../shell/Page';
import { Empty, Failure, Skeleton } from '../../ui/States';
import { words } from '../../words';
import { AccountLine } from './AccountLine';
import styles from './accounts.module.css';

/** The caller's own accounts at services, one row each. */
export default function AccountsPage() {
  const accounts = useQuery(accountsQuery);
  return (
    <Page title={words.shell.pages.accounts} padded>
      {accounts.isPending && <Skeleton rows={3} height={64} />}
      {accounts.error && <Failure error={accounts.error} onRetry={() => void accounts.refetch()} />}
      {accounts.data?.length === 0 && <Empty title={words.accounts.none}>{words.accounts.noneMore}</Empty>}
      {accounts.data && accounts.data.length > 0 && (
        <div className={`box ${styles.list ?? ''}`}>
          {accounts.data.map((account) => (
            <AccountLine key={account.provider} account={account} />
          ))}
        </div>
      )}
    </Page>
  );
}
