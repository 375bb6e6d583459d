import { useQuery } from '@tanstack/react-query';

import { toolQuery } from '../../api/queries';
import type { Card } from '../../api/types';
import { Foreign } from '../../ui/Foreign';
import { Glyph } from '../../ui/Glyph';
import { BoundIcon } from '../../ui/icons';
import { JsonText } from '../../ui/JsonText';
import { TabList, TabPanel, Tabs } from '../../ui/Tabs';
import { words } from '../../words';
import { Preview } from '../previews/Preview';
import styles from './card.module.css';

export type DetailTab = 'preview' | 'arguments' | 'json';

interface DetailsProps {
  card: Card;
  tab: DetailTab;
  onTab: (tab: DetailTab) => void;
  onOpenFold: () => void;
}

const { tabs } = words.cards;
const TITLES: Record<string, string> = {
  http_request: words.cards.wouldSend,
  command: words.cards.wouldRun,
  diff: words.cards.wouldChange,
};
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
      <Tabs value={shown} onChange={onTab} className={styles.panel}>
        <div className={styles.head}>
          <h3>{TITLES[kind] ?? words.cards.wouldDo}</h3>
          <span className="end">
            <TabList items={items} label={words.cards.preview} />
          </span>
        </div>
        <TabPanel value="preview">
          <Preview card={card} onOpen={onOpenFold} />
        </TabPanel>
        <TabPanel value="arguments">
          {!card.preview && <p className={`${styles.pad ?? ''} soft`}>{words.cards.noPreview}</p>}
          <ArgumentTable card={card} />
        </TabPanel>
        <TabPanel value="json" className={styles.pad}>
          <JsonText value={card.arguments} />
        </TabPanel>
      </Tabs>
      {card.kind === 'approval' && card.status === 'open' && (
        <p className={styles.binding}>
          <Glyph icon={BoundIcon} size={12} />
          {words.cards.binding}
        </p>
      )}
    </>
  );
}

interface PropertySchema {
  type?: string | string[];
  description?: string;
}

/** Arguments with their types and what they are for, as the tool declares them. */
export function ArgumentTable({ card }: { card: Card }) {
  const schema = useQuery(toolQuery(card.tool_name)).data?.input_schema;
  const properties = (schema?.properties ?? {}) as Record<string, PropertySchema>;
  const names = Object.keys(card.arguments);
  if (names.length === 0) return <p className={`${styles.pad ?? ''} faint`}>{words.cards.noArguments}</p>;
  return (
    <table className={styles.arguments}>
      <thead>
        <tr>
          <th scope="col">{words.cards.argument}</th>
          <th scope="col">{words.cards.value}</th>
          <th scope="col">{words.cards.about}</th>
        </tr>
      </thead>
      <tbody>
        {names.map((name) => (
          <tr key={name}>
            <td className="mono">
              <Foreign text={name} />
            </td>
            <td>
              <Value value={card.arguments[name]} masked={card.masked.includes(`/${name}`)} />
            </td>
            <td className="soft">
              <Foreign text={aboutOf(properties[name])} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Value({ value, masked }: { value: unknown; masked: boolean }) {
  if (masked) return <span className="faint">•••••••• {words.cards.masked}</span>;
  if (typeof value === 'object' && value !== null) return <JsonText value={value} />;
  return (
    <span className="mono">
      <Foreign text={typeof value === 'string' ? value : JSON.stringify(value)} block limit={1000} />
    </span>
  );
}

function aboutOf({ type, description }: PropertySchema = {}): string {
  const shownType = Array.isArray(type) ? type.join(' or ') : (type ?? '');
  return [shownType, description ?? ''].filter(Boolean).join(' · ');
}
