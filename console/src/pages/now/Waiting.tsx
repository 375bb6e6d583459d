import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';

import { openCardsQuery } from '../../api/queries';
import { useMe } from '../../api/session';
import type { Card } from '../../api/types';
import { mayAnswer } from '../../cards/answering';
import { Asker, GistLine } from '../../cards/GistLine';
import { isDefinitionChange, lookOf, rowIcon, serviceOf } from '../../cards/kinds';
import { byUrgency } from '../../cards/list';
import { useNow } from '../../format/clock';
import { formatCountdown, urgency } from '../../format/time';
import { buttonClasses } from '../../ui/Button';
import { Chip } from '../../ui/Chip';
import { classes } from '../../ui/classes';
import { Foreign } from '../../ui/Foreign';
import { Glyph } from '../../ui/Glyph';
import { UntrustedIcon } from '../../ui/icons';
import { Empty, Failure, Skeleton } from '../../ui/States';
import { Age } from '../../ui/Time';
import { ToolName } from '../../ui/ToolName';
import { words } from '../../words';
import styles from './now.module.css';
import { Section } from './Section';

const MOST = 7;

/** What waits for this person, at most seven; each is opened to be answered. */
export function Waiting() {
  const me = useMe();
  const now = useNow(60);
  const cards = useQuery(openCardsQuery);
  const mine = (cards.data ?? []).filter((card) => mayAnswer(card, me)).sort(byUrgency(now));
  const others = (cards.data?.length ?? 0) - mine.length;
  return (
    <Section title={words.now.waits} count={mine.length} action={<Link to="/approvals">{words.now.all}</Link>}>
      <div className="box">
        {cards.isPending && <Skeleton rows={3} height={70} />}
        {cards.error && <Failure error={cards.error} onRetry={() => void cards.refetch()} inline />}
        {cards.data && mine.length === 0 && <Empty title={words.now.noneWait} inline />}
        {mine.slice(0, MOST).map((card) => (
          <Ask key={card.id} card={card} />
        ))}
        {mine.length > MOST && (
          <Link to="/approvals" className={styles.more}>
            {words.now.andMore(mine.length - MOST)}
          </Link>
        )}
        {others > 0 && (
          <Link to="/approvals" search={{ mine: 'no' }} className={styles.more}>
            {words.now.forOthers(others)}
          </Link>
        )}
      </div>
    </Section>
  );
}

function Ask({ card }: { card: Card }) {
  const { tone } = lookOf(card);
  return (
    <div className={styles.ask}>
      <span className={classes(styles.icon, styles[tone])}>
        <Glyph icon={rowIcon(card)} />
      </span>
      <div className="grow">
        <div className="row wrap">
          <Sentence card={card} />
        </div>
        <div className="cut">
          <GistLine card={card} strong />
        </div>
        <Facts card={card} />
      </div>
      <div className={styles.actions}>
        <span className="t12 faint num">
          <Age at={card.created_at} />
        </span>
        <Link to="/approvals/$id" params={{ id: card.id }} className={buttonClasses()}>
          {actionWords(card)}
        </Link>
      </div>
    </div>
  );
}

function Sentence({ card }: { card: Card }) {
  const tool = <ToolName name={card.tool_name} />;
  const asker = (
    <span className="medium">
      <Asker card={card} />
    </span>
  );
  if (isDefinitionChange(card)) return <>{tool} {say(words.cards.definitionChanged)}</>;
  if (card.kind === 'unknown') return <>{tool} {say(words.cards.outcomeUnknown)}</>;
  if (card.kind === 'restart') return <>{tool} {say(words.cards.resumes)}</>;
  if (card.kind === 'input') return <>{tool} {say(words.cards.asksYou)}</>;
  if (card.kind === 'consent') {
    return (
      <>
        {asker} <span className="soft">{<Foreign text={words.cards.needsAccount(serviceOf(card))} />}</span>
      </>
    );
  }
  return <>{asker} {say(words.cards.wantsToCall)} {tool}</>;
}

function say(text: string) {
  return <span className="soft">{text}</span>;
}

function Facts({ card }: { card: Card }) {
  const now = useNow(10);
  const left = card.expires_at - now;
  return (
    <div className={styles.facts}>
      {card.taint && card.taint.length > 0 && (
        <Chip tone="taint" icon={UntrustedIcon}>
          {words.cards.untrusted}
        </Chip>
      )}
      {card.rule?.reason && <Foreign text={card.rule.reason} limit={80} />}
      <span className={urgency(left) === 'calm' ? '' : 'wait-ink medium'}>
        {words.cards.expires(formatCountdown(left))}
      </span>
    </div>
  );
}

function actionWords(card: Card): string {
  if (card.kind === 'consent') return words.now.connect;
  if (card.kind === 'unknown') return words.now.sayWhat;
  return card.kind === 'restart' ? words.now.look : words.now.review;
}
