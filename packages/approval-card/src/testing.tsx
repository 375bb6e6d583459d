/** For tests: components in a page, and what a person does with them. */

import { act, type ReactNode } from 'react';
import { createRoot, type Root } from 'react-dom/client';
import { afterEach } from 'vitest';

let roots: Root[] = [];

afterEach(() => {
  act(() => {
    for (const root of roots) root.unmount();
  });
  roots = [];
  document.body.replaceChildren();
});

/** Render into the page; returns the place. */
export function show(element: ReactNode): HTMLElement {
  const place = document.createElement('div');
  document.body.append(place);
  const root = createRoot(place);
  roots.push(root);
  act(() => root.render(element));
  return place;
}

export function press(element: Element | null | undefined): void {
  if (!element) throw new Error('nothing to press');
  act(() => void element.dispatchEvent(new MouseEvent('click', { bubbles: true })));
}

/** Type into an input, as React hears it. */
export function type(element: Element | null | undefined, text: string): void {
  if (!(element instanceof HTMLInputElement || element instanceof HTMLTextAreaElement)) throw new Error('nothing to type into');
  const prototype = element instanceof HTMLTextAreaElement ? HTMLTextAreaElement.prototype : HTMLInputElement.prototype;
  act(() => {
    Object.getOwnPropertyDescriptor(prototype, 'value')?.set?.call(element, text);
    element.dispatchEvent(new Event('input', { bubbles: true }));
  });
}

/** The button with this text or name. */
export function button(place: Element, name: string): HTMLElement | undefined {
  const found = [...place.querySelectorAll<HTMLElement>('button, [role="radio"]')];
  return found.find((one) => one.textContent.trim() === name || one.getAttribute('aria-label') === name);
}
