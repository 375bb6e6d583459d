import type { EventFilters } from '../../api/audit';
import { gatewayNow } from '../../format/clock';
import { Select } from '../../ui/Select';
import { TextFilter } from '../../ui/TextFilter';
import { auditWords } from '../../words';
import styles from './audit.module.css';
import { typeOptions } from './filters';

type WindowName = keyof typeof auditWords.windows;
const WINDOWS: Record<WindowName, number> = { '1h': 3600, '24h': 86_400, '7d': 604_800, '30d': 2_592_000 };
const NAMES = Object.keys(WINDOWS) as WindowName[];

/** Filters by type, time, tool, user and run. */
export function AuditFilters({ filters, onChange }: { filters: EventFilters; onChange: (next: EventFilters) => void }) {
  return (
    <div className={styles.filters}>
      <Select
        look="chip"
        label={auditWords.allTypes}
        value={filters.type ?? ''}
        options={typeOptions(filters.type)}
        onChange={(type) => onChange({ type })}
      />
      <Select
        look="chip"
        label={auditWords.anyTime}
        value={windowOf(filters)}
        options={[{ value: '', label: auditWords.anyTime }, ...NAMES.map((value) => ({ value, label: auditWords.windows[value] }))]}
        onChange={(name) => onChange({ since: name === '' ? undefined : Math.floor(gatewayNow() - WINDOWS[name]), until: undefined })}
      />
      <TextFilter label={auditWords.tool} value={filters.tool ?? ''} onChange={(tool) => onChange({ tool })} />
      <TextFilter label={auditWords.user} value={filters.user ?? ''} onChange={(user) => onChange({ user })} />
      <TextFilter label={auditWords.run} value={filters.run ?? ''} onChange={(run) => onChange({ run })} />
    </div>
  );
}

/** The window that begins about when the filter does. */
function windowOf({ since }: EventFilters): WindowName | '' {
  if (since === undefined) return '';
  const age = gatewayNow() - since;
  return NAMES.find((name) => Math.abs(age - WINDOWS[name]) < WINDOWS[name] / 2) ?? '';
}
