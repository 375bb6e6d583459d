import { isNewer } from '../api/own-build';
import { useMe } from '../api/session';
import { formatClockSeconds } from '../format/time';
import { textOf } from '../live/events';
import { useLive } from '../live/live';
import { useRecentEvents } from '../live/recent';
import { Button } from '../ui/Button';
import { classes } from '../ui/classes';
import { Foreign } from '../ui/Foreign';
import { words } from '../words';
import styles from './Shell.module.css';

/** One line at the top of the panel for what concerns every page; the most severe of several. */
export function Banner() {
  const { stream, since } = useLive();
  const refused = useConfigRefusal();
  const me = useMe();
  if (stream.kind === 'waiting' && stream.stopping) return <Line bad>{words.banner.stopping}</Line>;
  if (stream.kind === 'waiting' && stream.offline) {
    return <Line bad>{words.banner.offline(formatClockSeconds(since))}</Line>;
  }
  if (refused !== undefined) {
    return (
      <Line bad>
        {words.banner.configRefused} <Foreign text={refused} />
      </Line>
    );
  }
  if (isNewer(me)) {
    return (
      <Line>
        {words.banner.newer} <Button onClick={() => location.reload()}>{words.banner.reload}</Button>
      </Line>
    );
  }
  return null;
}

function Line({ bad, children }: { bad?: boolean; children: React.ReactNode }) {
  return (
    <div className={classes(styles.banner, bad && styles.bad)} role="status">
      {children}
    </div>
  );
}

/** Why the newest configuration was refused, until one is applied. */
function useConfigRefusal(): string | undefined {
  const last = useRecentEvents().find((event) => event.type === 'CONFIG_REFUSED' || event.type === 'CONFIG_APPLIED');
  return last?.type === 'CONFIG_REFUSED' ? textOf(last, 'reason') : undefined;
}
