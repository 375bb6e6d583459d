import { useMemo, useRef, useState } from 'react';

import { Select } from '../ui/Select';
import { Segmented } from '../ui/Tabs';
import { visible } from '../ui/foreign-text';
import { useForm } from './context';
import styles from './Form.module.css';
import { branchValue } from './initial';
import type { Json } from './json';
import { ObjectBody } from './ObjectField';
import { Node, type FieldProps } from './Node';
import { describe, type Branch } from './shape';
import { branchOf } from './validate';

const MOST_SEGMENTS = 4;

/** One of several schemas. The branch is that of the value, until a person chooses one; each branch keeps what was typed in it. */
export function UnionField({ branches, value, onChange, path, name, id, disabled }: FieldProps & { branches: Branch[] }) {
  const { root } = useForm();
  const found = useMemo(() => branchOf(value, branches.map((branch) => branch.schema), root), [value, branches, root]);
  const [picked, setPicked] = useState<number>();
  const drafts = useRef(new Map<number, Json>());
  const current = picked ?? found;
  const branch = branches[current] ?? branches[0];
  function choose(index: number) {
    if (value !== undefined) drafts.current.set(current, value);
    setPicked(index);
    onChange(drafts.current.get(index) ?? branchValue(branches[index]?.schema ?? {}, root));
  }
  const items = branches.map((one, index) => ({ value: String(index), label: visible(one.label).slice(0, 60) }));
  const chooser = { label: name, items, options: items, value: String(current), onChange: (next: string) => choose(Number(next)) };
  if (!branch) return null;
  const { shape } = describe(branch.schema, root, name);
  return (
    <div className={styles.union} id={id}>
      {items.length <= MOST_SEGMENTS && !disabled ? <Segmented wide {...chooser} /> : <Select look="full" disabled={disabled} {...chooser} />}
      <div className={styles.group} key={current}>
        {shape.kind === 'object' ? (
          <ObjectBody withoutConstants shape={shape} value={value} onChange={onChange} path={path} />
        ) : (
          <Node bare name={name} schema={branch.schema} path={path} value={value} onChange={onChange} required />
        )}
      </div>
    </div>
  );
}
