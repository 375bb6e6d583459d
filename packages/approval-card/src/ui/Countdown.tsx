import { useNow } from '../format/clock';
import { formatCountdown, formatExact, isoTime, urgency } from '../format/time';
import { words } from '../words';

const ANNOUNCED_S = [300, 60];

/** What is left until `at`. Amber below an hour, red below five minutes; screen readers hear it at 5 min and at 1 min. */
export function Countdown({ at }: { at: number }) {
  const now = useNow(1);
  const left = at - now;
  const state = urgency(left);
  const ink = { calm: '', soon: 'wait-ink', urgent: 'fail-ink', over: 'fail-ink' }[state];
  return (
    <>
      <time className={`num bold ${ink}`} dateTime={isoTime(at)} title={formatExact(at)}>
        {formatCountdown(left)}
      </time>
      <span className="visually-hidden" role="status">
        {announcement(left)}
      </span>
    </>
  );
}

function announcement(left: number): string {
  const step = ANNOUNCED_S.find((seconds) => left <= seconds && left > seconds - 5);
  return step === undefined ? '' : words.expiresIn(formatCountdown(step));
}
