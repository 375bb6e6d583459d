/** What all fields of a form share. */

import { createContext, useContext } from 'react';

import type { Json } from './json';
import type { SchemaRoot } from './resolve';
import type { Issue } from './validate';

export interface FormContext {
  root: SchemaRoot;
  /** The issues to show, by pointer. */
  issues: ReadonlyMap<string, readonly Issue[]>;
  /** Pointers of values that the gateway masked; they are kept unless a person replaces them. */
  masked: ReadonlySet<string>;
  /** The value before any change, to show what a field was. */
  original: Json | undefined;
  disabled: boolean;
  /** A person left a field; its issues are shown from now on. */
  touch: (pointer: string) => void;
  /** A JSON field has text that is not JSON, or no longer has. */
  setBroken: (pointer: string, broken: boolean) => void;
  unmask: (pointer: string) => void;
}

export const FormContext = createContext<FormContext | undefined>(undefined);

export function useForm(): FormContext {
  const form = useContext(FormContext);
  if (!form) throw new Error('a field outside of a SchemaForm');
  return form;
}
