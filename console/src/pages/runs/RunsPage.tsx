import { Page } from '../../shell/Page';
import { Empty } from '../../ui/States';
import { words } from '../../words';

export default function RunsPage() {
  return (
    <Page title={words.shell.pages.runs}>
      <Empty title={words.notBuilt} />
    </Page>
  );
}
