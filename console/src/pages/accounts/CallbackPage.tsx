import { useQuery } from '@tanstack/react-query';
import { Link, Navigate, useParams } from '@tanstack/react-router';

import { takeReturn } from '../../accounts/connect';
import { arrivedAnswer } from '../../api/arrival';
import { api, body } from '../../api/client';
import { isOwnPath } from '../../own-path';
import { Page } from '../../shell/Page';
import { buttonClasses } from '../../ui/Button';
import { Empty, Failure } from '../../ui/States';
import { words } from '../../words';

const { accounts: say } = words;
const back = takeReturn();

/** Finishes a sign-in at a service with what it sent back; the parameters have left the address already. */
export default function CallbackPage() {
  const { service } = useParams({ from: '/oauth/callback/$service' });
  const finished = useQuery({
    queryKey: ['callback', service],
    queryFn: () =>
      body(
        api.POST('/api/v1/accounts/{service}/callback', {
          params: { path: { service } },
          body: { parameters: arrivedAnswer?.parameters ?? {} },
        }),
      ),
    enabled: arrivedAnswer?.service === service,
    retry: false,
    staleTime: Infinity,
  });
  const links = (
    <Link to="/accounts" className={buttonClasses()}>
      {say.toAccounts}
    </Link>
  );
  if (finished.data && back !== undefined && isOwnPath(back)) return <Navigate to={back} replace />;
  return (
    <Page title={words.shell.pages.accounts}>
      {arrivedAnswer?.service !== service && <Empty title={say.nothingToFinish} actions={links} />}
      {finished.isLoading && <Empty title={say.finishing} />}
      {finished.data && (
        <Empty title={say.finished(finished.data.provider)} actions={links}>
          {say.finishedMore}
        </Empty>
      )}
      {finished.error && (
        <>
          <Empty title={say.failed} actions={links} />
          <Failure error={finished.error} />
        </>
      )}
    </Page>
  );
}
