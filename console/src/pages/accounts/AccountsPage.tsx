import { Page } from '../../shell/Page';
import { Empty } from '../../ui/States';
import { words } from '../../words';

export default function AccountsPage() {
  return (
    <Page title={words.shell.pages.accounts}>
      <Empty title={words.notBuilt} />
    </Page>
  );
}
