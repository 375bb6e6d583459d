import { useNavigate, useSearch } from '@tanstack/react-router';

import type { Card } from '../../api/types';
import { distinct } from '../../cards/list';
import { shortUser } from '../../cards/kinds';
import { FilterChip } from '../../ui/Chip';
import { visible } from '../../ui/foreign-text';
import { PersonIcon } from '../../ui/icons';
import { Select } from '../../ui/Select';
import { words } from '../../words';
import styles from './approvals.module.css';

const ANY = '*any*';
const KINDS = ['approval', 'input', 'consent', 'unknown', 'restart'] as const;

/** The filters of the list; they are in the address. */
export default function Filters({ cards }: { cards: readonly Card[] }) {
  const search = useSearch({ strict: false });
  const navigate = useNavigate();
  const set = (change: object) => void navigate({ to: '.', search: (now) => ({ ...now, ...change }) });
  const tools = distinct(cards, (card) => card.tool_name);
  const askers = distinct(cards, (card) => card.asked_by);
  return (
    <div className={styles.filters}>
      <FilterChip
        icon={PersonIcon}
        on={search.mine !== 'no'}
        onClick={() => set({ mine: search.mine === 'no' ? undefined : 'no' })}
      >
        {words.approvals.mine}
      </FilterChip>
      <Select
        look="chip"
        label={words.approvals.anyTool}
        value={search.tool ?? ANY}
        options={[
          { value: ANY, label: words.approvals.anyTool },
          ...tools.map((tool) => ({ value: tool, label: visible(tool) })),
        ]}
        onChange={(tool) => set({ tool: tool === ANY ? undefined : tool })}
      />
      <Select
        look="chip"
        label={words.approvals.anyKind}
        value={search.kind ?? ANY}
        options={[
          { value: ANY, label: words.approvals.anyKind },
          ...KINDS.map((kind) => ({ value: kind, label: words.cards.kinds[kind] })),
        ]}
        onChange={(kind) => set({ kind: kind === ANY ? undefined : kind })}
      />
      {askers.length > 1 && (
        <Select
          look="chip"
          label={words.approvals.anyAsker}
          value={search.by ?? ANY}
          options={[
            { value: ANY, label: words.approvals.anyAsker },
            ...askers.map((asker) => ({ value: asker, label: visible(shortUser(asker)) })),
          ]}
          onChange={(by) => set({ by: by === ANY ? undefined : by })}
        />
      )}
    </div>
  );
}
