import { Page } from '../../shell/Page';
import { Empty } from '../../ui/States';
import { words } from '../../words';

export default function ToolsPage() {
  return (
    <Page title={words.shell.pages.tools}>
      <Empty title={words.notBuilt} />
    </Page>
  );
}
