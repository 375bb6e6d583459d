import { Page } from '../../shell/Page';
import { Empty } from '../../ui/States';
import { words } from '../../words';

export default function SourcesPage() {
  return (
    <Page title={words.shell.pages.sources}>
      <Empty title={words.notBuilt} />
    </Page>
  );
}
