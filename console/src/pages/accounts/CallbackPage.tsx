import { Page } from '../../shell/Page';
import { Empty } from '../../ui/States';
import { words } from '../../words';

export default function CallbackPage() {
  return (
    <Page title={words.shell.pages.accounts}>
      <Empty title={words.notBuilt} />
    </Page>
  );
}
