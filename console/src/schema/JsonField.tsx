import { useEffect } from 'react';

import { useForm } from './context';
import { pointerOf } from './json';
import { JsonEditor } from './JsonEditor';
import type { FieldProps } from './Node';

/** A value that the form has no field for, as JSON. It is validated all the same. */
export function JsonField({ value, onChange, path, name, id, describedBy, disabled, onBlur }: FieldProps) {
  const { setBroken } = useForm();
  const pointer = pointerOf(path);
  useEffect(() => () => setBroken(pointer, false), [setBroken, pointer]);
  return (
    <JsonEditor
      id={id}
      label={name}
      describedBy={describedBy}
      disabled={disabled}
      value={value}
      onChange={onChange}
      onBroken={(broken) => setBroken(pointer, broken)}
      onBlur={onBlur}
    />
  );
}
