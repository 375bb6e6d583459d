import { useInfiniteQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';

import { toolListQuery } from '../../api/tools';
import type { Source } from '../../api/types';
import { Chip } from '../../ui/Chip';
import { Foreign } from '../../ui/Foreign';
import { Empty, Failure, Skeleton } from '../../ui/States';
import { ToolName } from '../../ui/ToolName';
import { sourceWords } from '../../words';
import { effectLook, verdictLook } from '../tools/effects';
import styles from './Sources.module.css';

const SHOWN = 8;

/** The first tools of a source, with their effects and what the policy decides about them. */
export function SourceTools({ source }: { source: Source }) {
  const query = useInfiniteQuery(toolListQuery({ source: source.name }));
  const page = query.data?.pages[0];
  return (
    <section className={styles.section}>
      <div className="row">
        <h2>{sourceWords.tools}</h2>
        {page && <span className="faint num">{page.total.toLocaleString()}</span>}
        {page && page.total > SHOWN && (
          <Link to="/tools" search={{ source: source.name }} className="link t12 end">
            {sourceWords.allTools}
          </Link>
        )}
      </div>
      {query.isPending && <Skeleton rows={3} />}
      {query.error && <Failure inline error={query.error} onRetry={() => void query.refetch()} />}
      {page?.total === 0 && <Empty title={sourceWords.noTools} inline />}
      {page && page.total > 0 && (
        <div className="box">
          {page.items.slice(0, SHOWN).map((tool) => {
            const effect = effectLook(tool);
            const verdict = verdictLook(tool.verdict);
            return (
              <Link key={tool.name} to="/tools/$name" params={{ name: tool.name }} className={styles.tool}>
                <span className="grow">
                  <ToolName name={tool.name} />
                  <span className={styles.description}>
                    <Foreign text={tool.description} limit={160} />
                  </span>
                </span>
                <Chip tone={effect.tone} icon={effect.icon}>
                  {effect.word}
                </Chip>
                <Chip tone={verdict.tone}>{verdict.word}</Chip>
              </Link>
            );
          })}
        </div>
      )}
    </section>
  );
}
