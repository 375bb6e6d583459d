/** Text that a tool, a server or an agent wrote: which of its characters would deceive a reader. */

export interface Piece {
  text: string;
  /** The character is shown by its number, because it is invisible or changes the direction of others. */
  hidden: boolean;
}

// Controls but tab, newline and return; soft hyphen; marks that are zero wide, change direction, separate lines or tag.
const HIDDEN =
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff9-\ufffb\u{1d173}-\u{1d17a}\u{e0000}-\u{e01ef}]/gu;

/** Split text into what is shown as it is and single characters that are shown by number. */
export function pieces(text: string): Piece[] {
  const found: Piece[] = [];
  let from = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (joinsEmoji(text, match.index)) continue;
    if (match.index > from) found.push({ text: text.slice(from, match.index), hidden: false });
    found.push({ text: match[0], hidden: true });
    from = match.index + match[0].length;
  }
  if (from < text.length) found.push({ text: text.slice(from), hidden: false });
  return found;
}

/** How a hidden character is shown: `⟦U+202E⟧`. */
export function codePoint(character: string): string {
  const point = character.codePointAt(0) ?? 0;
  return `⟦U+${point.toString(16).toUpperCase().padStart(4, '0')}⟧`;
}

/** The text as one string in which hidden characters are shown by number. */
export function visible(text: string): string {
  return pieces(text)
    .map((piece) => (piece.hidden ? codePoint(piece.text) : piece.text))
    .join('');
}

/** Cut text at whole characters; returns what is shown and how many bytes are left out. */
export function cut(text: string, limit: number): { shown: string; leftOut: number } {
  if (text.length <= limit) return { shown: text, leftOut: 0 };
  const high = text.charCodeAt(limit - 1);
  const end = high >= 0xd800 && high <= 0xdbff ? limit - 1 : limit;
  return { shown: text.slice(0, end), leftOut: new Blob([text.slice(end)]).size };
}

const SCRIPTS = [/\p{Script=Latin}/u, /\p{Script=Cyrillic}/u, /\p{Script=Greek}/u, /\p{Script=Armenian}/u, /\p{Script=Cherokee}/u];

/** Whether a name is made of letters that look alike in several alphabets. */
export function mixesScripts(name: string): boolean {
  return SCRIPTS.filter((script) => script.test(name)).length > 1;
}

// A zero-width joiner between two pictures is part of one picture.
function joinsEmoji(text: string, at: number): boolean {
  if (text.charCodeAt(at) !== 0x200d) return false;
  return /[\p{Extended_Pictographic}\ufe0f\p{Emoji_Modifier}]$/u.test(text.slice(Math.max(0, at - 2), at)) && /^\p{Extended_Pictographic}/u.test(text.slice(at + 1, at + 3));
}
