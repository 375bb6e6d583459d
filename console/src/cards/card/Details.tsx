import pieces from '@toolpost/approval-card/card/card.module.css';
import { ArgumentTable, Binding } from '@toolpost/approval-card/card/Arguments';
import { Preview, previewTitle } from '@toolpost/approval-card/previews/Preview';
import { useQuery } from '@tanstack/react-query';

import { toolQuery } from '../../api/queries';
import type { Card } from '../../api/types';
import { JsonText } from '../../ui/JsonText';
import { TabList, TabPanel, Tabs } from '../../ui/Tabs';
import { words } from '../../words';

export type DetailTab = 'preview' | 'arguments' | 'json';

interface DetailsProps {
  card: Card;
  tab: DetailTab;
  onTab: (tab: DetailTab) => void;
  onOpenFold: () => void;
}

const { tabs } = words.cards;
const TAB_NAMES: Record<string, string> = { http_request: tabs.request, command: tabs.command, diff: tabs.diff };

/** What the call would do: the preview, the arguments as a table, and as JSON. */
export function Details({ card, tab, onTab, onOpenFold }: DetailsProps) {
  const kind = card.preview?.kind ?? '';
  const items = [
    ...(card.preview ? [{ value: 'preview' as const, label: TAB_NAMES[kind] ?? tabs.preview }] : []),
    { value: 'arguments' as const, label: tabs.arguments },
    { value: 'json' as const, label: tabs.json },
  ];
  const shown = card.preview || tab !== 'preview' ? tab : 'arguments';
  return (
    <>
      <Tabs value={shown} onChange={onTab} className={pieces.panel}>
        <div className={pieces.head}>
          <h3>{previewTitle(card)}</h3>
          <span className="end">
            <TabList items={items} label={words.cards.preview} />
          </span>
        </div>
        <TabPanel value="preview">
          <Preview action={card} onOpen={onOpenFold} />
        </TabPanel>
        <TabPanel value="arguments">
          {!card.preview && <p className={`${pieces.pad ?? ''} soft`}>{words.cards.noPreview}</p>}
          <CardArguments card={card} />
        </TabPanel>
        <TabPanel value="json" className={pieces.pad}>
          <JsonText value={card.arguments} />
        </TabPanel>
      </Tabs>
      {card.kind === 'approval' && card.status === 'open' && <Binding />}
    </>
  );
}

/** The arguments, with types and descriptions of the catalog. */
export function CardArguments({ card }: { card: Card }) {
  return <ArgumentTable action={card} schema={useQuery(toolQuery(card.tool_name)).data?.input_schema ?? {}} />;
}
