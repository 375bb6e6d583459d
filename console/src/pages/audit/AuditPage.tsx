import { Page } from '../../shell/Page';
import { Empty } from '../../ui/States';
import { words } from '../../words';

export default function AuditPage() {
  return (
    <Page title={words.shell.pages.audit}>
      <Empty title={words.notBuilt} />
    </Page>
  );
}
