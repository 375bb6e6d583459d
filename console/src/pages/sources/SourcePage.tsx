import { Page } from '../../shell/Page';
import { Empty } from '../../ui/States';
import { words } from '../../words';

export default function SourcePage() {
  return (
    <Page title={words.shell.pages.sources}>
      <Empty title={words.notBuilt} />
    </Page>
  );
}
