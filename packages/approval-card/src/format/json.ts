/** A value as JSON; nothing for a value that JSON does not have. */
export function jsonText(value: unknown, indent?: number): string {
  return value === undefined ? '' : JSON.stringify(value, null, indent);
}

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;
const LONGEST_LINE = 60;

/** JSON with one member on a line, and short lists on one. Numbers stay as they are written; undefined for other text. */
export function indentJson(text: string): string | undefined {
  try {
    JSON.parse(text);
  } catch {
    return undefined;
  }
  return new Layout(text.match(TOKEN) ?? []).value('');
}

class Layout {
  private at = 0;
  constructor(private readonly tokens: readonly string[]) {}

  value(indent: string): string {
    const token = this.next();
    if (token !== '{' && token !== '[') return token;
    const close = token === '{' ? '}' : ']';
    const members: string[] = [];
    while (this.tokens[this.at] !== close) {
      members.push(token === '{' ? this.member(`${indent}  `) : this.value(`${indent}  `));
      if (this.tokens[this.at] === ',') this.at += 1;
    }
    this.at += 1;
    if (members.length === 0) return token + close;
    const line = token === '{' ? `{ ${members.join(', ')} }` : `[${members.join(', ')}]`;
    if (indent !== '' && line.length <= LONGEST_LINE && !line.includes('\n')) return line;
    return `${token}\n${members.map((member) => `${indent}  ${member}`).join(',\n')}\n${indent}${close}`;
  }

  private member(indent: string): string {
    const name = this.next();
    this.at += 1; // The colon.
    return `${name}: ${this.value(indent)}`;
  }

  private next(): string {
    const token = this.tokens[this.at] ?? '';
    this.at += 1;
    return token;
  }
}
