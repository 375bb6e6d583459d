import { Link, useNavigate, useSearch } from '@tanstack/react-router';

import type { WindowName } from '../../api/queries';
import { useNow } from '../../format/clock';
import { formatWeekday } from '../../format/time';
import { Page } from '../../shell/Page';
import { buttonClasses } from '../../ui/Button';
import { Glyph } from '../../ui/Glyph';
import { TryIcon } from '../../ui/icons';
import { Select } from '../../ui/Select';
import { words } from '../../words';
import { Failures } from './Failures';
import { FirstSteps } from './FirstSteps';
import { JustNow } from './JustNow';
import styles from './now.module.css';
import { Pulse } from './Pulse';
import { RunsNow } from './RunsNow';
import { SourceStates } from './SourceStates';
import { Waiting } from './Waiting';

const WINDOW_NAMES: readonly WindowName[] = ['1h', '24h'];

/** What happens at this moment, and what waits for this person. */
export default function NowPage() {
  const { window = '1h' } = useSearch({ from: '/' });
  const navigate = useNavigate();
  const now = useNow(10);
  return (
    <Page
      title={words.shell.pages.now}
      note={formatWeekday(now)}
      actions={
        <>
          <Select
            look="chip"
            label={words.now.window[window]}
            value={window}
            options={WINDOW_NAMES.map((value) => ({ value, label: words.now.window[value] }))}
            onChange={(value) => void navigate({ to: '/', search: value === '1h' ? {} : { window: value } })}
          />
          <Link to="/tools" className={buttonClasses()}>
            <Glyph icon={TryIcon} size={14} />
            {words.now.tryTool}
          </Link>
        </>
      }
    >
      <Pulse window={window} />
      <div className={styles.columns}>
        <div className={styles.column}>
          <FirstSteps />
          <Waiting />
          <RunsNow />
          <Failures window={window} />
        </div>
        <div className={styles.column}>
          <SourceStates />
          <JustNow />
        </div>
      </div>
    </Page>
  );
}
