import { Page } from '../../shell/Page';
import { Empty } from '../../ui/States';
import { words } from '../../words';

export default function ApprovalsPage() {
  return (
    <Page title={words.shell.pages.approvals}>
      <Empty title={words.notBuilt} />
    </Page>
  );
}
