import { useQuery } from '@tanstack/react-query';

import { BASE_URL } from '../../api/address';
import { aboutQuery } from '../../api/queries';
import { Chip } from '../../ui/Chip';
import { Foreign } from '../../ui/Foreign';
import { Failure, Skeleton } from '../../ui/States';
import { settingsWords } from '../../words';
import { SectionHead } from './SectionHead';
import styles from './settings.module.css';

const say = settingsWords.about;

/** What this gateway is and where it keeps its data. */
export function About() {
  const about = useQuery(aboutQuery);
  if (about.isPending) return <Skeleton rows={8} height={28} />;
  if (about.error) return <Failure error={about.error} onRetry={() => void about.refetch()} />;
  const { data } = about;
  const facts: [name: string, value: string | null, isCode?: boolean][] = [
    [say.version, data.version],
    [say.python, data.python],
    [say.platform, data.platform],
    [say.url, data.public_url, true],
    [say.workers, String(data.workers)],
    [say.dataDir, data.data_dir, true],
    [say.database, data.database],
    [say.config, data.config, true],
    [say.lock, data.lock, true],
    [say.policy, data.policy],
    [say.commands, data.commands],
  ];
  const extras = Object.entries(data.extras).filter(([, installed]) => installed);
  return (
    <>
      <SectionHead section="about" />
      <dl className={styles.facts}>
        {facts.map(([name, value, isCode]) => (
          <Fact key={name} name={name}>
            {value ? <Foreign text={value} className={isCode ? 'mono' : undefined} /> : '–'}
          </Fact>
        ))}
        <Fact name={say.extras}>
          <span className="row wrap">
            {extras.map(([name]) => (
              <Chip key={name} tone="line">
                {name}
              </Chip>
            ))}
          </span>
        </Fact>
        <Fact name={say.problems}>
          {data.problems === null && '–'}
          {data.problems?.length === 0 && say.none}
          {data.problems?.map((problem) => (
            <p key={problem} className={styles.problem}>
              <Foreign text={problem} block />
            </p>
          ))}
        </Fact>
        <Fact name={say.licenses}>
          <a className="link" href={`${BASE_URL}/THIRD_PARTY_LICENSES`} target="_blank" rel="noopener noreferrer">
            THIRD_PARTY_LICENSES
          </a>
        </Fact>
      </dl>
    </>
  );
}

function Fact({ name, children }: { name: string; children: React.ReactNode }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}
