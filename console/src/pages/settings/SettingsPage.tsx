import { Page } from '../../shell/Page';
import { Empty } from '../../ui/States';
import { words } from '../../words';

export default function SettingsPage() {
  return (
    <Page title={words.shell.pages.settings}>
      <Empty title={words.notBuilt} />
    </Page>
  );
}
