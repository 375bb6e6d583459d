import { lexer, type Token, type Tokens } from 'marked';
import { Fragment, useMemo, type ReactNode } from 'react';

import { Foreign, Pieces } from '../ui/Foreign';
import { viewWords } from '../words';
import styles from './Markdown.module.css';

const LONGEST = 200_000;

/** Markdown that a tool wrote. HTML in it is shown as text, images and links as links with their host, and nothing is loaded. */
export default function Markdown({ text }: { text: string }) {
  const tokens = useMemo(() => (text.length > LONGEST ? undefined : lexer(text)), [text]);
  if (!tokens) return <Foreign text={text} block />;
  return (
    <div className={styles.markdown} dir="auto">
      <Blocks tokens={tokens} />
    </div>
  );
}

function Blocks({ tokens }: { tokens: Token[] }) {
  return tokens.map((token, index) => <Fragment key={index}>{block(token)}</Fragment>);
}

function block(token: Token): ReactNode {
  switch (token.type) {
    case 'space':
    case 'def':
      return null;
    case 'heading':
      return (
        <p className={styles.heading} role="heading" aria-level={Math.min(6, (token as Tokens.Heading).depth + 2)}>
          <Inline tokens={token.tokens ?? []} />
        </p>
      );
    case 'paragraph':
      return (
        <p>
          <Inline tokens={token.tokens ?? []} />
        </p>
      );
    case 'code':
      return (
        <pre className="code">
          <Pieces text={(token as Tokens.Code).text} />
        </pre>
      );
    case 'blockquote':
      return (
        <blockquote className={styles.quote}>
          <Blocks tokens={token.tokens ?? []} />
        </blockquote>
      );
    case 'list':
      return <List list={token as Tokens.List} />;
    case 'table':
      return <Table table={token as Tokens.Table} />;
    case 'hr':
      return <hr className={styles.rule} />;
    case 'text':
      return token.tokens ? <Inline tokens={token.tokens} /> : <Pieces text={(token as Tokens.Text).text} />;
    default:
      return (
        <p className={styles.raw}>
          <Pieces text={token.raw} />
        </p>
      );
  }
}

function List({ list }: { list: Tokens.List }) {
  const items = list.items.map((item, index) => (
    <li key={index}>
      {item.task && <input type="checkbox" checked={item.checked === true} readOnly disabled />} <Blocks tokens={item.tokens} />
    </li>
  ));
  return list.ordered ? <ol start={list.start === '' ? undefined : list.start}>{items}</ol> : <ul>{items}</ul>;
}

function Table({ table }: { table: Tokens.Table }) {
  return (
    <div className={styles.scroll}>
      <table>
        <thead>
          <tr>
            {table.header.map((cell, index) => (
              <th key={index} scope="col">
                <Inline tokens={cell.tokens} />
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {table.rows.map((row, index) => (
            <tr key={index}>
              {row.map((cell, column) => (
                <td key={column}>
                  <Inline tokens={cell.tokens} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Inline({ tokens }: { tokens: Token[] }) {
  return tokens.map((token, index) => <Fragment key={index}>{inline(token)}</Fragment>);
}

function inline(token: Token): ReactNode {
  const nested = 'tokens' in token && token.tokens ? token.tokens : undefined;
  const inner = <Inline tokens={nested ?? []} />;
  switch (token.type) {
    case 'strong':
      return <strong>{inner}</strong>;
    case 'em':
      return <em>{inner}</em>;
    case 'del':
      return <s>{inner}</s>;
    case 'br':
      return <br />;
    case 'codespan':
      return (
        <code className={styles.code}>
          <Pieces text={(token as Tokens.Codespan).text} />
        </code>
      );
    case 'link':
      return <OtherLink href={(token as Tokens.Link).href}>{inner}</OtherLink>;
    case 'image':
      return (
        <OtherLink href={(token as Tokens.Image).href}>
          {viewWords.image}: <Pieces text={(token as Tokens.Image).text} />
        </OtherLink>
      );
    case 'text':
    case 'escape':
      return nested ? inner : <Pieces text={(token as Tokens.Text).text} />;
    default:
      return <Pieces text={token.raw} />;
  }
}

/** A link in untrusted text: its host is shown, and only http and https can be opened. */
export function OtherLink({ href, children }: { href: string; children: ReactNode }) {
  const address = addressOf(href);
  if (!address) {
    return (
      <>
        {children} (<Pieces text={href} />)
      </>
    );
  }
  return (
    <>
      {children}{' '}
      <a className={styles.link} href={address.href} target="_blank" rel="noopener noreferrer" title={address.href}>
        {address.protocol}//{address.host}
      </a>
    </>
  );
}

function addressOf(href: string): URL | undefined {
  if (!URL.canParse(href)) return undefined;
  const address = new URL(href);
  return ['http:', 'https:'].includes(address.protocol) ? address : undefined;
}
