/** The last reasons that a person gave for a denial, newest first; kept in this browser. */

const KEY = 'toolpost.reasons';
const KEPT = 5;

export function lastReasons(): string[] {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(KEY) ?? '[]');
    return Array.isArray(stored) ? stored.filter((one) => typeof one === 'string') : [];
  } catch {
    return [];
  }
}

export function rememberReason(reason: string): void {
  if (reason === '') return;
  const reasons = [reason, ...lastReasons().filter((one) => one !== reason)].slice(0, KEPT);
  localStorage.setItem(KEY, JSON.stringify(reasons));
}
