import { BoundIcon } from '../icons';
import type { PendingAction } from '../types';
import { Foreign } from '../ui/Foreign';
import { Glyph } from '../ui/Glyph';
import { JsonText } from '../ui/JsonText';
import { words } from '../words';
import styles from './card.module.css';

interface PropertySchema {
  type?: string | string[];
  description?: string;
}

interface ArgumentTableProps {
  action: PendingAction;
  /** The input schema of the tool, for types and descriptions. */
  schema?: Record<string, unknown>;
}

/** Arguments with their types and what they are for, as the tool declares them. */
export function ArgumentTable({ action, schema }: ArgumentTableProps) {
  const properties = (schema?.properties ?? {}) as Record<string, PropertySchema>;
  const names = Object.keys(action.arguments);
  if (names.length === 0) return <p className={`${styles.pad ?? ''} faint`}>{words.cards.noArguments}</p>;
  return (
    <table className={styles.arguments}>
      <thead>
        <tr>
          <th scope="col">{words.cards.argument}</th>
          <th scope="col">{words.cards.value}</th>
          {schema && <th scope="col">{words.cards.about}</th>}
        </tr>
      </thead>
      <tbody>
        {names.map((name) => (
          <tr key={name}>
            <td className="mono">
              <Foreign text={name} />
            </td>
            <td>
              <Value value={action.arguments[name]} masked={action.masked.includes(`/${name}`)} />
            </td>
            {schema && (
              <td className="soft">
                <Foreign text={aboutOf(properties[name])} />
              </td>
            )}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** What an approval covers. */
export function Binding() {
  return (
    <p className={styles.binding}>
      <Glyph icon={BoundIcon} size={12} />
      {words.cards.binding}
    </p>
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
