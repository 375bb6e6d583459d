import { Page } from '../../shell/Page';
import { Empty } from '../../ui/States';
import { words } from '../../words';

export default function InsightPage() {
  return (
    <Page title={words.shell.pages.insight}>
      <Empty title={words.notBuilt} />
    </Page>
  );
}
