import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';

import { failuresQuery, type WindowName } from '../../api/queries';
import { useMe } from '../../api/session';
import { formatCount } from '../../format/number';
import { Chip } from '../../ui/Chip';
import { Foreign } from '../../ui/Foreign';
import { Glyph } from '../../ui/Glyph';
import { FailureIcon } from '../../ui/icons';
import { Empty, Failure, Skeleton } from '../../ui/States';
import { Age } from '../../ui/Time';
import { ToolName } from '../../ui/ToolName';
import { words } from '../../words';
import { Sparkline } from './BarChart';
import styles from './now.module.css';
import { Section } from './Section';

/** What failed in the window, by tool and error code, most often first. */
export function Failures({ window }: { window: WindowName }) {
  const { scopes } = useMe();
  const allowed = scopes.includes('answer') || scopes.includes('admin');
  const failures = useQuery({ ...failuresQuery(window), enabled: allowed });
  if (!allowed) return null;
  const { top = [], series = [] } = failures.data ?? {};
  const total = top.reduce((sum, item) => sum + item.failed, 0);
  return (
    <Section title={words.now.failures[window]} count={total}>
      <div className="box">
        {failures.isPending && <Skeleton rows={2} height={36} />}
        {failures.error && <Failure error={failures.error} onRetry={() => void failures.refetch()} inline />}
        {failures.data && top.length === 0 && <Empty title={words.now.noneFailed} inline />}
        {top.map((item) => {
          const [tool = '', code = ''] = item.key.split(' ');
          return (
            <Link key={item.key} to="/runs" search={{ tool, status: 'failed' }} className={styles.line}>
              <Glyph icon={FailureIcon} className="fail-ink" />
              <span className="cut">
                <ToolName name={tool} />
              </span>
              <Chip tone="fail">
                <Foreign text={code} />
              </Chip>
              <span className={`${styles.message ?? ''} cut soft`}>
                {typeof item.message === 'string' && <Foreign text={item.message} limit={160} />}
              </span>
              <span className="end row">
                <Sparkline values={series.find((one) => one.key === item.key)?.values ?? []} />
                <span className="num bold">{words.now.times(formatCount(item.failed))}</span>
                <span className="faint num t12">
                  <Age at={item.last_at} ago />
                </span>
              </span>
            </Link>
          );
        })}
      </div>
    </Section>
  );
}
