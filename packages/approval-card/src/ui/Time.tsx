import { useNow } from '../format/clock';
import { formatAge, formatExact, formatMoment, isoTime } from '../format/time';
import { words } from '../words';

/** How long ago something was; the exact time is its title. `ago` adds the word. */
export function Age({ at, ago }: { at: number; ago?: boolean }) {
  const now = useNow(10);
  const age = formatAge(Math.max(0, now - at));
  return (
    <time dateTime={isoTime(at)} title={formatExact(at)}>
      {ago && age !== 'now' ? words.ago(age) : age}
    </time>
  );
}

/** The clock time, or the date beyond a day; the exact time is its title. */
export function Moment({ at }: { at: number }) {
  const now = useNow(60);
  return (
    <time dateTime={isoTime(at)} title={formatExact(at)}>
      {formatMoment(at, now)}
    </time>
  );
}
