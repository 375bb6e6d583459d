import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';

import { BASE_URL } from '../../api/address';
import { exampleToolQuery, openCardsQuery, runsQuery } from '../../api/queries';
import { CopyBlock } from '../../ui/Copy';
import { ToolName } from '../../ui/ToolName';
import { words } from '../../words';
import styles from './now.module.css';
import { Section } from './Section';

/** What to do on a gateway that was never called. */
export function FirstSteps() {
  const runs = useQuery(runsQuery).data;
  const cards = useQuery(openCardsQuery).data;
  const tool = useQuery(exampleToolQuery).data;
  if (runs?.items.length !== 0 || cards?.length !== 0) return null;
  return (
    <Section title={words.now.firstSteps}>
      <ol className={styles.steps}>
        <li>
          {words.now.firstConnect}
          <CopyBlock text="toolpost tools connect time" />
        </li>
        {tool && (
          <>
            <li>
              {words.now.firstCall}
              <CopyBlock text={curl(tool)} />
            </li>
            <li>
              {words.now.firstTry}{' '}
              <Link to="/tools/$name" params={{ name: tool }} className="link">
                <ToolName name={tool} />
              </Link>
            </li>
          </>
        )}
      </ol>
    </Section>
  );
}

function curl(tool: string): string {
  const body = JSON.stringify({ tool, arguments: {} }).replace(/'/g, String.raw`'\''`);
  return `curl ${BASE_URL}/api/v1/calls \\\n  -H "Authorization: Bearer $TOOLPOST_KEY" \\\n  -H 'Content-Type: application/json' \\\n  -d '${body}'`;
}
