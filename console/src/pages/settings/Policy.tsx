import { useQuery } from '@tanstack/react-query';

import { policyQuery } from '../../api/queries';
import type { PolicyRule } from '../../api/types';
import { Chip } from '../../ui/Chip';
import { Foreign } from '../../ui/Foreign';
import { Failure, Skeleton } from '../../ui/States';
import { settingsWords, words } from '../../words';
import { Explain } from './Explain';
import { SectionHead } from './SectionHead';
import styles from './settings.module.css';

const say = settingsWords;
export const ACTION_TONE = { allow: 'ok', ask: 'wait', deny: 'fail' } as const;

/** The rules in their order with how many tools each decides about, and why one call gets its verdict. */
export function Policy() {
  const policy = useQuery(policyQuery);
  if (policy.isPending) return <Skeleton rows={4} height={60} />;
  if (policy.error) return <Failure error={policy.error} onRetry={() => void policy.refetch()} />;
  const { rules, template, file } = policy.data;
  return (
    <>
      <SectionHead section="policy" />
      {file && (
        <p className="soft">
          <Foreign text={say.policyFile(file)} />
        </p>
      )}
      <div className="box">
        {rules.map((rule) => (
          <Rule key={rule.index} rule={rule} />
        ))}
        <div className={styles.rule}>
          <div className="row wrap">
            <span className="medium">{say.template(template.name)}</span>
            <span className="soft">{say.templateNote}</span>
            <span className="end faint">{words.counts.tools(template.tools)}</span>
          </div>
        </div>
      </div>
      <Explain />
    </>
  );
}

function Rule({ rule }: { rule: PolicyRule }) {
  return (
    <div className={styles.rule}>
      <div className="row wrap">
        <span className="medium">{say.ruleTitle(rule.index)}</span>
        <Chip tone={ACTION_TONE[rule.action]}>{say.actions[rule.action]}</Chip>
        {rule.reason && (
          <span className="soft">
            <Foreign text={rule.reason} />
          </span>
        )}
        {rule.tools !== undefined && <span className="end faint">{words.counts.tools(rule.tools)}</span>}
      </div>
      <pre className="code">
        <Foreign text={rule.text} block />
      </pre>
      <Approvals approvals={rule.approvals} />
    </div>
  );
}

function Approvals({ approvals: { answerers, four_eyes: fourEyes } }: Pick<PolicyRule, 'approvals'>) {
  if (!answerers && !fourEyes) return null;
  return (
    <p className={styles.approvals}>
      {words.cards.who}: <Foreign text={answerers?.join(', ') ?? words.cards.anybody} />
      {fourEyes && `, ${words.cards.butNotAsker}`}
    </p>
  );
}
