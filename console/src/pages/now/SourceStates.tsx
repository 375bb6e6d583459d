import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';

import { sourcesQuery } from '../../api/queries';
import type { Source } from '../../api/types';
import { SOURCE_TONE } from '../../cards/source-tone';
import { Dot } from '../../ui/Dot';
import { Foreign } from '../../ui/Foreign';
import { Empty, Failure, Skeleton } from '../../ui/States';
import { words } from '../../words';
import styles from './now.module.css';
import { Section } from './Section';

const ORDER = ['down', 'connecting', 'up', 'idle', 'disabled'];

/** How the sources are, the worst first. */
export function SourceStates() {
  const sources = useQuery(sourcesQuery);
  const sorted = (sources.data ?? []).toSorted((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state));
  return (
    <Section title={words.now.sources} count={sorted.length}>
      <div className="box">
        {sources.isPending && <Skeleton rows={4} height={32} />}
        {sources.error && <Failure error={sources.error} onRetry={() => void sources.refetch()} inline />}
        {sources.data?.length === 0 && <Empty title={words.now.noSources} inline />}
        {sorted.map((source) => (
          <SourceLine key={source.name} source={source} />
        ))}
      </div>
    </Section>
  );
}

function SourceLine({ source }: { source: Source }) {
  const up = source.state === 'up';
  return (
    <Link to="/sources/$name" params={{ name: source.name }} className={styles.source} title={source.error ?? undefined}>
      <Dot tone={SOURCE_TONE[source.state]} />
      <span className="medium">
        <Foreign text={source.name} />
      </span>
      <span className="soft cut">{source.transport}</span>
      <span className={`end t12 ${source.state === 'down' ? 'fail-ink' : 'soft'}`}>
        {up ? words.now.toolCount(source.tools) : (words.now.states[source.state] ?? source.state)}
      </span>
    </Link>
  );
}
