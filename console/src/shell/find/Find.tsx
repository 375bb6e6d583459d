import { Dialog } from '@base-ui/react/dialog';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useEffect, useId, useRef, useState, type KeyboardEvent } from 'react';

import { BASE_PATH } from '../../api/address';
import { openCardsQuery, runsQuery, sourcesQuery, toolSearchQuery } from '../../api/queries';
import { Foreign } from '../../ui/Foreign';
import { Glyph } from '../../ui/Glyph';
import { FindIcon } from '../../ui/icons';
import { ToolName } from '../../ui/ToolName';
import { words } from '../../words';
import { findEntries, lastFound, rememberFound, toolEntry, type Entry, type EntryGroup } from './entries';
import styles from './Find.module.css';

const DEBOUNCE_MS = 120;

/** Search for a page, a tool, a question, a run or a source, and go there. */
export default function Find({ open, onClose }: { open: boolean; onClose: () => void }) {
  return (
    <Dialog.Root open={open} onOpenChange={(next) => !next && onClose()}>
      <Dialog.Portal>
        <Dialog.Backdrop className={styles.backdrop} />
        <Dialog.Popup className={styles.popup} aria-label={words.shell.find}>
          <Search onClose={onClose} />
        </Dialog.Popup>
      </Dialog.Portal>
    </Dialog.Root>
  );
}

function Search({ onClose }: { onClose: () => void }) {
  const [text, setText] = useState('');
  const [active, setActive] = useState(0);
  const id = useId();
  const navigate = useNavigate();
  const groups = useGroups(text);
  const entries = groups.flatMap((group) => group.entries);
  const chosen = entries[Math.min(active, entries.length - 1)];

  function open(entry: Entry, elsewhere: boolean) {
    rememberFound(entry);
    onClose();
    if (elsewhere) window.open(BASE_PATH + entry.path, '_blank', 'noopener');
    else void navigate({ to: entry.path });
  }
  function onKeyDown(event: KeyboardEvent) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      setActive((Math.min(active, entries.length - 1) + step + entries.length) % Math.max(1, entries.length));
    } else if (event.key === 'Enter' && chosen) {
      event.preventDefault();
      open(chosen, event.metaKey || event.ctrlKey);
    }
  }

  return (
    <>
      <div className={styles.field}>
        <Glyph icon={FindIcon} />
        <input
          autoFocus
          role="combobox"
          aria-expanded
          aria-controls={id}
          aria-activedescendant={chosen && `${id}-${chosen.path}`}
          aria-label={words.shell.find}
          placeholder={words.find.placeholder}
          value={text}
          autoComplete="off"
          spellCheck={false}
          onChange={(event) => {
            setText(event.target.value);
            setActive(0);
          }}
          onKeyDown={onKeyDown}
        />
      </div>
      <div className={styles.list} id={id} role="listbox" aria-label={words.shell.find}>
        {entries.length === 0 && <p className={styles.none}>{words.find.nothing}</p>}
        {groups.map((group) => (
          <div key={group.title} role="group" aria-label={group.title}>
            <div className={styles.title}>{group.title}</div>
            {group.entries.map((entry) => (
              <Line
                key={entry.path}
                id={`${id}-${entry.path}`}
                entry={entry}
                selected={entry === chosen}
                onOpen={(elsewhere) => open(entry, elsewhere)}
                onPoint={() => setActive(entries.indexOf(entry))}
              />
            ))}
          </div>
        ))}
      </div>
    </>
  );
}

interface LineProps {
  id: string;
  entry: Entry;
  selected: boolean;
  onOpen: (elsewhere: boolean) => void;
  onPoint: () => void;
}

function Line({ id, entry, selected, onOpen, onPoint }: LineProps) {
  const element = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (selected) element.current?.scrollIntoView({ block: 'nearest' });
  }, [selected]);
  return (
    <div
      ref={element}
      id={id}
      role="option"
      aria-selected={selected}
      className={styles.entry}
      onClick={(event) => onOpen(event.metaKey || event.ctrlKey)}
      onPointerMove={selected ? undefined : onPoint}
    >
      <Glyph icon={entry.icon} className="soft" />
      <span className="cut">{entry.isTool ? <ToolName name={entry.label} /> : <Foreign text={entry.label} />}</span>
      {entry.note && (
        <span className={`${styles.note ?? ''} cut`}>
          <Foreign text={entry.note} limit={120} />
        </span>
      )}
    </div>
  );
}

/** Everything that fits the text: what is known immediately, and the tools that the gateway finds. */
function useGroups(text: string): EntryGroup[] {
  const query = useDebounced(text.trim());
  const cards = useQuery(openCardsQuery).data ?? [];
  const runs = useQuery(runsQuery).data?.items ?? [];
  const sources = useQuery(sourcesQuery).data ?? [];
  const tools = useQuery({ ...toolSearchQuery(query), enabled: query !== '', placeholderData: keepPreviousData }).data;
  const known = findEntries(text, { cards, runs, sources });
  const recent = text.trim() === '' ? lastFound() : [];
  const found = query !== '' && text.trim() !== '' ? (tools ?? []).map(toolEntry) : [];
  return [
    ...(recent.length > 0 ? [{ title: words.find.recent, entries: recent }] : []),
    ...known,
    ...(found.length > 0 ? [{ title: words.shell.pages.tools, entries: found }] : []),
  ];
}

function useDebounced(text: string): string {
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), DEBOUNCE_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return settled;
}
