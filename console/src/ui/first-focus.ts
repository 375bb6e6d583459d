/** What a dialog focuses when it opens: its first field, or itself. Not its close button, whose tooltip would take `Esc`. */
export function firstFocus(popup: HTMLElement | null): HTMLElement | null {
  return popup?.querySelector<HTMLElement>('input, textarea, select') ?? popup;
}
