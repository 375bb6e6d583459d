/** The filters of events: groups of types, and which events of the stream match. */

import type { EventFilters } from '../../api/audit';
import type { Event } from '../../api/types';
import { textOf } from '../../live/events';
import { auditWords, words } from '../../words';

/** Types that are looked for together, as the API takes them. */
const GROUPS: Record<keyof typeof auditWords.groups, string> = {
  calls: 'TOOL_CALL_*,CALL_RETRIED,FALLBACK_USED,SUBAGENT_ACTION,ARTIFACT_STORED',
  approvals: 'APPROVAL_*,CALL_PAUSED,CALL_RESUMED,QUESTION_EXPIRED',
  sources: 'SOURCE_*,BREAKER_*,CATALOG_CHANGED,DEFINITION_CHANGED',
  accounts: 'ACCOUNT_*',
  sessions: 'CALLER_KEY_*,SESSION_*,TICKET_REFUSED',
  configuration: 'CONFIG_*,DATABASE_RESTORED',
  tasks: 'TASK_*,TURN_FAILED,MESSAGE_*,REASON_DONE,STEPS_REFLECTED,REFLECTION_*,NEED_MORE_INFO',
};

/** All types, then groups of types, then each type alone. */
export function typeOptions(chosen: string | undefined): { value: string; label: string }[] {
  const groups = Object.entries(GROUPS).map(([name, value]) => ({ value, label: auditWords.groups[name as keyof typeof GROUPS] }));
  const types = Object.keys(words.events).map((type) => ({ value: type, label: type }));
  const options = [{ value: '', label: auditWords.allTypes }, ...groups, ...types];
  const isListed = chosen === undefined || options.some((option) => option.value === chosen);
  return isListed ? options : [...options, { value: chosen, label: chosen }];
}

export function matches(event: Event, { type, tool, user, run, since, until }: EventFilters): boolean {
  return (
    (type === undefined || type.split(',').some((pattern) => fits(event.type, pattern.trim()))) &&
    (tool === undefined || fits(textOf(event, 'tool_name'), tool)) &&
    (user === undefined || event.user === user) &&
    (run === undefined || event.run_id === run) &&
    (since === undefined || event.at >= since) &&
    (until === undefined || event.at <= until)
  );
}

/** Whether a text is what a pattern says, in which `*` is any text. */
function fits(text: string, pattern: string): boolean {
  const parts = pattern.split('*').map((part) => part.replace(/[\\^$.|?+()[\]{}]/g, '\\$&'));
  return new RegExp(`^${parts.join('.*')}$`, 's').test(text);
}
