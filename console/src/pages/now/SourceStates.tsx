import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';

import { sourcesQuery } from '../../api/queries';
import type { Source } from '../../api/types';
import { useNow } from '../../format/clock';
import { Dot } from '../../ui/Dot';
import { Foreign } from '../../ui/Foreign';
import { Empty, Failure, Skeleton } from '../../ui/States';
import { words } from '../../words';
import { INKS, lookOf, worstFirst } from '../sources/state';
import styles from './now.module.css';
import { Section } from './Section';

/** How the sources are, the worst first. */
export function SourceStates() {
  const now = useNow(10);
  const sources = useQuery(sourcesQuery);
  const sorted = worstFirst(sources.data ?? [], now);
  return (
    <Section title={words.now.sources} count={sorted.length}>
      <div className="box">
        {sources.isPending && <Skeleton rows={4} height={32} />}
        {sources.error && <Failure error={sources.error} onRetry={() => void sources.refetch()} inline />}
        {sources.data?.length === 0 && <Empty title={words.now.noSources} inline />}
        {sorted.map((source) => (
          <SourceLine key={source.name} source={source} now={now} />
        ))}
      </div>
    </Section>
  );
}

function SourceLine({ source, now }: { source: Source; now: number }) {
  const { tone, text } = lookOf(source, now);
  return (
    <Link to="/sources/$name" params={{ name: source.name }} className={styles.source} title={source.error ?? undefined}>
      <Dot tone={tone} />
      <span className="medium cut">
        <Foreign text={source.name} />
      </span>
      <span className="soft cut">{source.transport}</span>
      <span className={`end t12 ${styles.state ?? ''} ${INKS[tone] ?? 'soft'}`}>{tone === 'ok' ? words.counts.tools(source.tools) : text}</span>
    </Link>
  );
}
