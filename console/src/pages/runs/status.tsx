import { Chip } from '../../ui/Chip';
import { AskIcon, DoneIcon, FailureIcon, TryIcon, UnknownIcon, type Icon } from '../../ui/icons';
import type { Tone } from '../../ui/tone';
import { runWords } from '../../words';

const LOOKS: Record<string, { tone: Tone; icon: Icon }> = {
  running: { tone: 'run', icon: TryIcon },
  paused: { tone: 'wait', icon: AskIcon },
  completed: { tone: 'ok', icon: DoneIcon },
  failed: { tone: 'fail', icon: FailureIcon },
  denied: { tone: 'fail', icon: FailureIcon },
  cancelled: { tone: 'idle', icon: FailureIcon },
};

export const statusTone = (status: string): Tone => LOOKS[status]?.tone ?? 'idle';

/** The state of a run or a call. */
export function StatusChip({ status, large }: { status: string; large?: boolean }) {
  const { tone, icon } = LOOKS[status] ?? { tone: 'idle' as const, icon: UnknownIcon };
  return (
    <Chip tone={tone} icon={icon} large={large}>
      {runWords.statuses[status] ?? status}
    </Chip>
  );
}
