import { Popover } from '@base-ui/react/popover';

import { useNow } from '../format/clock';
import { formatExact } from '../format/time';
import { useLive, type LiveState } from '../live/live';
import { Dot } from '../ui/Dot';
import type { Tone } from '../ui/tone';
import { words } from '../words';
import styles from './LiveMark.module.css';
import shell from './Shell.module.css';

/** Whether events arrive, in words; a press shows since when, the last event and which tab reads them. */
export function LiveMark() {
  const live = useLive();
  const now = useNow(1);
  const { tone, text } = stateOf(live, now);
  return (
    <Popover.Root>
      <Popover.Trigger className={shell.live}>
        <Dot tone={tone} size="halo" />
        <span className={shell.word}>{text}</span>
      </Popover.Trigger>
      <Popover.Portal>
        <Popover.Positioner side="top" align="start" sideOffset={6} className={styles.positioner}>
          <Popover.Popup className={styles.popup}>
            <Popover.Title className={styles.title}>{text}</Popover.Title>
            <dl className={styles.facts}>
              <dt>{words.live.since}</dt>
              <dd>{formatExact(live.since)}</dd>
              <dt>{words.live.lastEvent}</dt>
              <dd className="num">{live.lastId ?? '–'}</dd>
              <dt>{words.live.listener}</dt>
              <dd>{live.reads ? words.live.thisTab : words.live.otherTab}</dd>
            </dl>
          </Popover.Popup>
        </Popover.Positioner>
      </Popover.Portal>
    </Popover.Root>
  );
}

function stateOf({ stream, behind }: LiveState, now: number): { tone: Tone; text: string } {
  if (stream.kind === 'waiting') {
    if (stream.offline) return { tone: 'fail', text: words.live.offline };
    return { tone: 'wait', text: words.live.reconnecting(Math.max(1, Math.ceil(stream.at / 1000 - now))) };
  }
  if (stream.kind === 'connecting') return { tone: 'wait', text: words.live.connecting };
  if (behind > 0) return { tone: 'wait', text: words.live.behind(behind) };
  return { tone: 'ok', text: words.live.live };
}
