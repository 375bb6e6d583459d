import { useVirtualizer } from '@tanstack/react-virtual';
import { useRef, type ClipboardEvent, type KeyboardEvent } from 'react';

import { Button, IconButton } from '../ui/Button';
import { Checkbox } from '../ui/Field';
import { Foreign } from '../ui/Foreign';
import { AddIcon, DownIcon, RemoveIcon, UpIcon } from '../ui/icons';
import { schemaWords } from '../words';
import { useForm } from './context';
import styles from './Form.module.css';
import { initialValue } from './initial';
import { equal, isObject, numberOf, type Json } from './json';
import { Node, textOf, type FieldProps } from './Node';
import type { JsonSchema, SchemaRoot } from './resolve';
import { describe, type Property } from './shape';

const VIRTUAL_ABOVE = 50;
const ROW_HEIGHT = 44;
const MOST_COLUMNS = 3;

/** Rows with buttons to add, remove and move them. Pasted lines, or lines of CSV for rows of several columns, fill rows. */
export function ArrayField({ items, value, onChange, path, disabled, schema, id }: FieldProps & { items: JsonSchema }) {
  const { root } = useForm();
  const rows = Array.isArray(value) ? value : [];
  const columns = columnsOf(items, root);
  const most = typeof schema.maxItems === 'number' ? schema.maxItems : Infinity;

  function move(from: number, to: number) {
    const moved = rows[from];
    if (moved === undefined || to < 0 || to >= rows.length) return;
    const next = rows.filter((_, index) => index !== from);
    next.splice(to, 0, moved);
    onChange(next);
  }
  function paste(event: ClipboardEvent, at: number) {
    const lines = event.clipboardData.getData('text/plain').split(/\r?\n/).filter((line) => line !== '');
    if (lines.length < 2) return;
    const filled = lines.map((line) => rowOf(line, items, columns, root));
    if (filled.some((one) => one === undefined)) return;
    event.preventDefault();
    onChange([...rows.slice(0, at), ...(filled as Json[]), ...rows.slice(at + 1)].slice(0, most));
  }
  const row = (index: number) => (
    <ArrayRow
      index={index}
      last={index === rows.length - 1}
      disabled={disabled}
      onMove={(to) => move(index, to)}
      onRemove={() => onChange(rows.filter((_, one) => one !== index))}
      onPaste={(event) => paste(event, index)}
    >
      <RowInputs
        columns={columns}
        items={items}
        path={[...path, index]}
        value={rows[index]}
        onChange={(next) => onChange(rows.map((one, at) => (at === index ? (next ?? null) : one)))}
      />
    </ArrayRow>
  );
  return (
    <div className={styles.array} id={id}>
      {rows.length > VIRTUAL_ABOVE ? <VirtualRows count={rows.length} row={row} /> : rows.map((_, index) => <div key={index}>{row(index)}</div>)}
      <Button look="ghost" icon={AddIcon} disabled={disabled || rows.length >= most} onClick={() => onChange([...rows, initialValue(items, root)])}>
        {schemaWords.addItem}
      </Button>
    </div>
  );
}

interface RowProps {
  index: number;
  last: boolean;
  disabled: boolean;
  onMove: (to: number) => void;
  onRemove: () => void;
  onPaste: (event: ClipboardEvent) => void;
  children: React.ReactNode;
}

function ArrayRow({ index, last, disabled, onMove, onRemove, onPaste, children }: RowProps) {
  function onKeyDown(event: KeyboardEvent) {
    if (!event.altKey || (event.key !== 'ArrowUp' && event.key !== 'ArrowDown')) return;
    event.preventDefault();
    event.stopPropagation();
    onMove(index + (event.key === 'ArrowUp' ? -1 : 1));
  }
  const name = schemaWords.item(index + 1);
  return (
    <div className={styles.arrayRow} role="group" aria-label={name} onKeyDown={onKeyDown} onPaste={onPaste}>
      <span className={styles.number}>{index + 1}</span>
      <div className="grow">{children}</div>
      <span className={styles.rowButtons}>
        <IconButton icon={UpIcon} className={styles.small} label={`${schemaWords.moveUp}: ${name}`} disabled={disabled || index === 0} onClick={() => onMove(index - 1)} />
        <IconButton icon={DownIcon} className={styles.small} label={`${schemaWords.moveDown}: ${name}`} disabled={disabled || last} onClick={() => onMove(index + 1)} />
        <IconButton icon={RemoveIcon} className={styles.small} label={`${schemaWords.remove}: ${name}`} disabled={disabled} onClick={onRemove} />
      </span>
    </div>
  );
}

/** The inputs of a row: a few simple columns beside each other, or the field of the item. */
function RowInputs({ columns, items, path, value, onChange }: { columns: Property[] | undefined } & Pick<FieldProps, 'path' | 'value' | 'onChange'> & { items: JsonSchema }) {
  const simple = columns && isObject(value) && Object.keys(value).every((name) => columns.some((column) => column.name === name));
  if (!simple) return <Node bare name={schemaWords.item(Number(path.at(-1)) + 1)} schema={items} path={path} value={value} onChange={onChange} required />;
  return (
    <div className={styles.columns}>
      {columns.map((column) => (
        <Node
          key={column.name}
          bare
          name={column.name}
          schema={column.schema}
          path={[...path, column.name]}
          value={value[column.name]}
          required
          onChange={(next) => onChange({ ...value, [column.name]: next ?? '' })}
        />
      ))}
    </div>
  );
}

/** Rows of a long list, of which only those on the screen exist. */
function VirtualRows({ count, row }: { count: number; row: (index: number) => React.ReactNode }) {
  const view = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({ count, getScrollElement: () => view.current, estimateSize: () => ROW_HEIGHT, overscan: 5 });
  return (
    <div ref={view} className={styles.longArray}>
      <div className={styles.sizer} style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((item) => (
          <div key={item.key} ref={virtual.measureElement} data-index={item.index} className={styles.virtualRow} style={{ transform: `translateY(${item.start}px)` }}>
            {row(item.index)}
          </div>
        ))}
      </div>
    </div>
  );
}

/** Several of some values, as checkboxes. */
export function ChoicesField({ values, value, onChange, disabled, id }: FieldProps & { values: Json[] }) {
  const chosen = Array.isArray(value) ? value : [];
  const has = (one: Json) => chosen.some((other) => equal(one, other));
  return (
    <div className={styles.choices} id={id}>
      {values.map((one, index) => (
        <Checkbox
          key={index}
          checked={has(one)}
          disabled={disabled}
          label={<Foreign text={textOf(one)} limit={80} />}
          onChange={(event) => onChange(event.target.checked ? [...chosen, one] : chosen.filter((other) => !equal(one, other)))}
        />
      ))}
    </div>
  );
}

/** The columns of items that fit in one row: up to three required texts, numbers or choices. */
function columnsOf(items: JsonSchema, root: SchemaRoot): Property[] | undefined {
  const { shape } = describe(items, root);
  if (shape.kind !== 'object' || shape.others || shape.properties.length === 0 || shape.properties.length > MOST_COLUMNS) return undefined;
  const simple = shape.properties.every((property) => {
    const inner = describe(property.schema, root, property.name).shape;
    return property.required && (inner.kind === 'number' || inner.kind === 'enum' || (inner.kind === 'text' && inner.input !== 'area' && inner.input !== 'password'));
  });
  return simple ? shape.properties : undefined;
}

/** The value of a pasted line; undefined if lines cannot fill such a row. */
function rowOf(line: string, items: JsonSchema, columns: Property[] | undefined, root: SchemaRoot): Json | undefined {
  if (!columns) return scalarOf(line, items, root);
  const cells = line.split(line.includes('\t') ? '\t' : ',').map((cell) => cell.trim().replace(/^"(.*)"$/, '$1'));
  const entries = columns.map((column, index): [string, Json] => [column.name, scalarOf(cells[index] ?? '', column.schema, root) ?? '']);
  return Object.fromEntries(entries);
}

function scalarOf(text: string, schema: JsonSchema, root: SchemaRoot): Json | undefined {
  const { kind } = describe(schema, root).shape;
  if (kind === 'number') return numberOf(text.trim()) ?? text;
  return kind === 'text' || kind === 'enum' ? text : undefined;
}
