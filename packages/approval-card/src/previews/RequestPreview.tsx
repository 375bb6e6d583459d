import { indentJson } from '../format/json';
import type { PendingAction } from '../types';
import { classes } from '../ui/classes';
import { Foreign } from '../ui/Foreign';
import { JsonCode, JsonText } from '../ui/JsonText';
import { words } from '../words';
import styles from './previews.module.css';
import { commandOf, requestOf, type RequestView, type UrlPart } from './request';

const READING = new Set(['GET', 'HEAD', 'OPTIONS']);

/** The HTTP request of a call; what comes from the arguments is marked. */
export function RequestPreview({ action }: { action: PendingAction }) {
  const request = requestOf(action);
  const hasBody = request.body !== undefined && JSON.stringify(request.body) !== '{}';
  return (
    <div className={styles.part}>
      <div className={styles.first}>
        <span className={classes(styles.method, methodLook(request.method))}>
          <Foreign text={request.method} />
        </span>
        <span className={styles.url}>
          <Filled parts={request.url} />
        </span>
      </div>
      <Headers headers={request.headers} />
      {request.query.length > 0 && (
        <dl className={styles.pairs}>
          {request.query.map(({ name, value }, index) => (
            <Pair key={index} name={name} value={value} />
          ))}
        </dl>
      )}
      {hasBody && request.guessed && <p className={styles.label}>{words.cards.otherArguments}</p>}
      {hasBody && <Body request={request} />}
    </div>
  );
}

/** The command of a call, one chip a word: each is passed on unchanged. */
export function CommandPreview({ action }: { action: PendingAction }) {
  const { cwd, env_names: names, stdin } = action.preview ?? {};
  return (
    <div className={styles.part}>
      <div className={styles.words}>
        {commandOf(action).map((word, index) => (
          <span key={index} className={styles.word}>
            <Filled parts={word} />
          </span>
        ))}
      </div>
      {cwd != null && (
        <p className={styles.label}>
          {words.cards.folder} <Foreign text={cwd} className="mono" />
        </p>
      )}
      {names && names.length > 0 && (
        <p className={styles.label}>
          {words.cards.variables} <Foreign text={names.join(', ')} className="mono" />
        </p>
      )}
      {stdin != null && <pre className="code">{<Foreign text={stdin} block />}</pre>}
    </div>
  );
}

function Body({ request: { body, contentType } }: { request: RequestView }) {
  if (typeof body !== 'string') return <JsonText value={body} />;
  const json = indentJson(body);
  if (json !== undefined) return <JsonCode text={json} />;
  return (
    <pre className="code" title={contentType}>
      <Foreign text={body} block />
    </pre>
  );
}

function Headers({ headers }: { headers: RequestView['headers'] }) {
  if (headers.length === 0) return null;
  return (
    <dl className={styles.pairs}>
      {headers.map((header, index) => (
        <Pair key={index} name={header.name} value={header.value} maskedBy={header.masked_by} />
      ))}
    </dl>
  );
}

function Pair({ name, value, maskedBy }: { name: string; value: string | null; maskedBy?: string | null }) {
  return (
    <>
      <dt>
        <Foreign text={name} />
      </dt>
      <dd>
        {value === null ? (
          <span className="faint">
            •••••••• {maskedBy != null && <span className="t11">{words.cards.maskedBy(maskedBy)}</span>}
          </span>
        ) : (
          <Foreign text={value} />
        )}
      </dd>
    </>
  );
}

function Filled({ parts }: { parts: UrlPart[] }) {
  return parts.map((part, index) =>
    part.filled ? (
      <span key={index} className={styles.filled} title={words.cards.filledIn}>
        <Foreign text={part.text} />
      </span>
    ) : (
      <Foreign key={index} text={part.text} limit={2000} />
    ),
  );
}

function methodLook(method: string): string | undefined {
  if (READING.has(method)) return styles.get;
  return method === 'DELETE' ? styles.delete : undefined;
}
