import { jsonText } from '../format/json';
import { Foreign, Pieces } from './Foreign';
import { jsonTokens } from './json-tokens';
import styles from './JsonText.module.css';

const LONGEST = 8000;

/** A small value as indented JSON; a large one is text that can be opened. */
export function JsonText({ value }: { value: unknown }) {
  return <JsonCode text={jsonText(value, 2)} />;
}

/** JSON that is text already, in its colors. */
export function JsonCode({ text }: { text: string }) {
  return (
    <pre className="code">
      {text.length > LONGEST ? (
        <Foreign text={text} block />
      ) : (
        jsonTokens(text).map((token, index) => (
          <span key={index} className={styles[token.kind]}>
            <Pieces text={token.text} />
          </span>
        ))
      )}
    </pre>
  );
}
