/** Keyboard shortcuts: one listener of the document, and a hook by which pages add theirs. */

import { useEffect, useRef } from 'react';

import { preferences } from './preferences';

/** Keys by name, such as `j`, `g n` (one after the other), `mod+k` or `Escape`, and what they do. */
export type KeyMap = Record<string, () => void>;

const SEQUENCE_MS = 1200;

const maps: { current: KeyMap }[] = [];
let first: { key: string; at: number } | undefined;

/** Add shortcuts while the component is mounted. The newest map wins. */
export function useKeys(map: KeyMap): void {
  const holder = useRef(map);
  useEffect(() => {
    holder.current = map;
  });
  useEffect(() => {
    const mine = holder;
    maps.push(mine);
    return () => {
      maps.splice(maps.indexOf(mine), 1);
    };
  }, []);
}

/** Listen; called once. */
export function listenToKeys(): void {
  document.addEventListener('keydown', (event) => {
    if (event.defaultPrevented || event.isComposing) return;
    const action = find(nameOf(event), event);
    if (!action) return;
    event.preventDefault();
    action();
  });
}

function find(name: string, event: KeyboardEvent): (() => void) | undefined {
  if (isLetter(event) && (isTyping(event.target) || !preferences().letterKeys || inDialog())) return undefined;
  const now = Date.now();
  const sequence = first && now - first.at < SEQUENCE_MS ? `${first.key} ${name}` : undefined;
  const action = (sequence && lookUp(sequence)) || lookUp(name);
  first = action ? undefined : { key: name, at: now };
  return action;
}

function lookUp(name: string): (() => void) | undefined {
  return maps.findLast((map) => name in map.current)?.current[name];
}

function nameOf(event: KeyboardEvent): string {
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  return event.metaKey || event.ctrlKey ? `mod+${key}` : key;
}

function isLetter(event: KeyboardEvent): boolean {
  return event.key.length === 1 && !event.metaKey && !event.ctrlKey;
}

/** A dialog has the keyboard to itself; a toast, which is one for assistive technology, does not. */
function inDialog(): boolean {
  return document.querySelector('[role="dialog"]:not([data-toast]), [role="alertdialog"], [role="menu"], [role="listbox"]') !== null;
}

function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName);
}

/** How a modifier is written on this machine. */
export const MODIFIER = /mac|iphone|ipad/i.test(navigator.userAgent) ? '⌘' : 'Ctrl ';
