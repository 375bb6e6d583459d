import { useId, type InputHTMLAttributes, type ReactNode, type Ref, type TextareaHTMLAttributes } from 'react';

import { classes } from './classes';
import styles from './Field.module.css';

interface FieldProps {
  label: ReactNode;
  hint?: ReactNode;
  error?: ReactNode;
  /** Gets the ids and states that tie the input to its label and messages. */
  children: (input: { id: string; 'aria-describedby': string | undefined; 'aria-invalid': boolean | undefined }) => ReactNode;
}

/** A label above an input, with a hint or an error below. */
export function Field({ label, hint, error, children }: FieldProps) {
  const id = useId();
  const described = error != null || hint != null ? `${id}-more` : undefined;
  return (
    <div className={styles.field}>
      <label className={styles.label} htmlFor={id}>
        {label}
      </label>
      {children({ id, 'aria-describedby': described, 'aria-invalid': error != null || undefined })}
      {described && (
        <div id={described} className={error != null ? styles.error : styles.hint}>
          {error ?? hint}
        </div>
      )}
    </div>
  );
}

export function Input({ className, ...rest }: InputHTMLAttributes<HTMLInputElement> & { ref?: Ref<HTMLInputElement> }) {
  return <input autoComplete="off" spellCheck={false} {...rest} className={classes(styles.input, className)} />;
}

export function TextArea({
  className,
  ...rest
}: TextareaHTMLAttributes<HTMLTextAreaElement> & { ref?: Ref<HTMLTextAreaElement> }) {
  return <textarea spellCheck={false} {...rest} className={classes(styles.input, styles.area, className)} />;
}
