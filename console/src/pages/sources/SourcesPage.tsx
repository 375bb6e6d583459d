import { useQuery } from '@tanstack/react-query';
import { Link, useLocation, useNavigate } from '@tanstack/react-router';
import { Fragment } from 'react';

import { sourcesQuery } from '../../api/queries';
import { useMe } from '../../api/session';
import type { Source } from '../../api/types';
import { useNow } from '../../format/clock';
import { formatCount } from '../../format/number';
import { formatDuration } from '../../format/time';
import { useKeys } from '../../shell/keys';
import { Page } from '../../shell/Page';
import { Button } from '../../ui/Button';
import { Chip } from '../../ui/Chip';
import { classes } from '../../ui/classes';
import { Dot } from '../../ui/Dot';
import { Foreign } from '../../ui/Foreign';
import { AddIcon } from '../../ui/icons';
import { Empty, Failure, Skeleton } from '../../ui/States';
import { sourceWords, words } from '../../words';
import { AddSource } from './AddSource';
import { Attention } from './Attention';
import styles from './Sources.module.css';
import { INKS, lookOf, worstFirst } from './state';

/** All sources, those that need attention first, and the drawer that adds one. */
export default function SourcesPage() {
  const navigate = useNavigate();
  const adding = useLocation().pathname.endsWith('/sources/add');
  const me = useMe();
  const now = useNow(1);
  const query = useQuery(sourcesQuery);
  const sources = worstFirst(query.data ?? [], now);
  const waiting = sources.filter((source) => lookOf(source, now).attention).length;
  const canChange = me.operator && me.scopes.includes('admin');
  const add = () => void navigate({ to: '/sources/add' });
  useKeys(canChange ? { n: add } : {});
  return (
    <Page
      title={words.shell.pages.sources}
      note={query.data && sourceWords.attention(sources.length, waiting)}
      actions={
        canChange && (
          <Button look="primary" icon={AddIcon} hint="N" onClick={add}>
            {sourceWords.add}
          </Button>
        )
      }
    >
      {query.isPending && <Skeleton />}
      {query.error && <Failure error={query.error} onRetry={() => void query.refetch()} />}
      {query.data?.length === 0 && (
        <Empty title={sourceWords.empty} actions={canChange && <Button onClick={add}>{sourceWords.add}</Button>}>
          {!canChange && sourceWords.cannotChange}
        </Empty>
      )}
      {sources.length > 0 && <SourceTable sources={sources} now={now} canChange={canChange} />}
      <AddSource open={adding && canChange} onClose={() => void navigate({ to: '/sources' })} />
    </Page>
  );
}

function SourceTable({ sources, now, canChange }: { sources: Source[]; now: number; canChange: boolean }) {
  return (
    <div className={styles.view}>
      <table className={styles.table} aria-label={words.shell.pages.sources}>
        <thead>
          <tr>
            <th scope="col">{sourceWords.name}</th>
            <th scope="col" className={styles.wide}>{sourceWords.kind}</th>
            <th scope="col" className={styles.wide}>{sourceWords.reachedBy}</th>
            <th scope="col">{sourceWords.state}</th>
            <th scope="col" className={styles.right}>{sourceWords.tools}</th>
            <th scope="col" className={classes(styles.right, styles.wide)}>{sourceWords.calls}</th>
            <th scope="col" className={classes(styles.right, styles.wide)}>p95</th>
          </tr>
        </thead>
        <tbody>
          {sources.map((source) => (
            <Fragment key={source.name}>
              <Row source={source} now={now} />
              {lookOf(source, now).attention && (
                <tr>
                  <td colSpan={7} className={styles.attentionCell}>
                    <Attention source={source} now={now} canChange={canChange} />
                  </td>
                </tr>
              )}
            </Fragment>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row({ source, now }: { source: Source; now: number }) {
  const navigate = useNavigate();
  const { tone, text } = lookOf(source, now);
  const open = () => void navigate({ to: '/sources/$name', params: { name: source.name } });
  return (
    <tr className={classes(styles.row, lookOf(source, now).attention && styles.joined)} onClick={open}>
      <td>
        <span className="row">
          <Dot tone={tone} />
          <Link to="/sources/$name" params={{ name: source.name }} className="bold" onClick={(event) => event.stopPropagation()}>
            <Foreign text={source.name} limit={60} />
          </Link>
        </span>
      </td>
      <td className={styles.wide}>
        <Chip tone="line">
          <Foreign text={source.transport} limit={40} />
        </Chip>
      </td>
      <td className={classes(styles.target, styles.wide)}>
        <Foreign text={source.target} limit={160} />
      </td>
      <td className={classes(styles.state, INKS[tone] ?? 'soft')}>{text}</td>
      <td className={styles.right}>{formatCount(source.tools)}</td>
      <td className={classes(styles.right, styles.wide)}>{formatCount(source.calls_1h)}</td>
      <td className={classes(styles.right, styles.wide)}>{source.p95_ms === null ? '–' : formatDuration(source.p95_ms)}</td>
    </tr>
  );
}
