import { Combobox } from '../ui/Combobox';
import { Switch } from '../ui/Field';
import { Foreign } from '../ui/Foreign';
import { visible } from '../ui/foreign-text';
import { Select } from '../ui/Select';
import { Segmented } from '../ui/Tabs';
import { schemaWords } from '../words';
import styles from './Form.module.css';
import { equal, type Json } from './json';
import { textOf, type FieldProps } from './Node';

const MOST_SEGMENTS = 4;
const MOST_OPTIONS = 12;
const LONGEST_SEGMENTS = 48;
const LEFT_OUT = 'left out';

/** A value that cannot be another. */
export function ConstField({ constant, id }: FieldProps & { constant: Json }) {
  return (
    <output id={id} className={styles.constant}>
      <Foreign text={textOf(constant)} />
    </output>
  );
}

/** A switch; with three values where the field can be left out and has no default. */
export function BooleanField({ value, onChange, required, schema, id, disabled, name, bare }: FieldProps) {
  if (required || 'default' in schema || bare) {
    return (
      <div className={styles.switch} id={id}>
        <Switch checked={value === true} onChange={onChange} disabled={disabled} label={value === true ? 'true' : 'false'} />
      </div>
    );
  }
  const items = [
    { value: 'true', label: 'true' },
    { value: 'false', label: 'false' },
    { value: LEFT_OUT, label: schemaWords.leftOut },
  ];
  return (
    <Segmented
      wide
      label={name}
      items={items}
      value={value === undefined ? LEFT_OUT : String(value === true)}
      onChange={(chosen) => onChange(chosen === LEFT_OUT ? undefined : chosen === 'true')}
    />
  );
}

/** One of some values: side by side, in a menu, or found by typing. A value that is none of them is kept and reported. */
export function EnumField({ values, value, onChange, id, disabled, name }: FieldProps & { values: Json[] }) {
  const options = values.map((one, index) => ({ value: String(index), label: visible(textOf(one)).slice(0, 120) }));
  const chosen = values.findIndex((one) => value !== undefined && equal(one, value));
  const current = chosen < 0 ? (value === undefined || value === '' ? '' : textOf(value)) : String(chosen);
  const choose = (index: string) => {
    const next = values[Number(index)];
    if (next !== undefined) onChange(next);
  };
  const length = options.reduce((sum, option) => sum + option.label.length, 0);
  if (options.length <= MOST_SEGMENTS && length <= LONGEST_SEGMENTS && !disabled) {
    return <Segmented wide label={name} items={options} value={current} onChange={choose} />;
  }
  if (options.length <= MOST_OPTIONS) {
    return <Select look="full" id={id} label={name} options={options} value={current} onChange={choose} disabled={disabled} />;
  }
  return <Combobox id={id} label={name} options={options} value={current} onChange={choose} disabled={disabled} />;
}
