import { Page } from '../../shell/Page';
import { Empty } from '../../ui/States';
import { words } from '../../words';

export default function SignedInPage() {
  return (
    <Page title={words.shell.pages.now}>
      <Empty title={words.notBuilt} />
    </Page>
  );
}
