import { DefinitionChanges } from '@toolpost/approval-card/card/DefinitionChanges';
import { useSeenEnd } from '@toolpost/approval-card/card/use-seen-end';
import { Suspense, useRef, useState, type ReactNode } from 'react';

import type { Card as CardData } from '../../api/types';
import { useMe } from '../../api/session';
import { usePhone } from '../../ui/media';
import { mayAnswer } from '../answering';
import { usePhase } from '../answers';
import { AnswerBar, type AnswerForm } from './AnswerBar';
import { BeforeThis, LikeIt, Rail, RailRows } from './Rail';
import styles from './card.module.css';
import { CardHead } from './CardHead';
import { Details, type DetailTab } from './Details';
import { Outcome } from './Outcome';
import { CardMenu } from './CardMenu';
import { CardTop } from './CardTop';
import { isDefinitionChange } from '../kinds';
import { useCardKeys } from './use-card-keys';
import { lazyPart } from '../../ui/lazy-part';

const EditForm = lazyPart(() => import('./EditForm'));

interface CardProps {
  card: CardData;
  /** Its place in the list. */
  position?: { at: number; of: number };
  onBack: () => void;
  onNext: () => void;
  onPrevious: () => void;
}

/** A pending action in full: what it would do, why one is asked, and the answers. */
export function Card({ card, position, onBack, onNext, onPrevious }: CardProps) {
  const [tab, setTab] = useState<DetailTab>('preview');
  const [editing, setEditing] = useState(false);
  const [form, setForm] = useState<AnswerForm>();
  const bar = useRef<HTMLElement>(null);
  const phone = usePhone();
  const me = useMe();
  const phase = usePhase(card.id);
  const { mark, seen, see } = useSeenEnd();
  const open = card.status === 'open' && phase.at !== 'ended' && phase.at !== 'elsewhere';
  useCardKeys({ card, bar, setTab, onBack, onNext, onPrevious });

  return (
    <article className={styles.card} data-detail aria-label={card.tool_name}>
      <CardTop
        card={card}
        position={position}
        menu={phone && open && !editing && mayAnswer(card, me) && <CardMenu card={card} onPassOn={() => setForm('pass-on')} />}
        onBack={onBack}
      />
      <div className={styles.body}>
        <div className={styles.what}>
          <CardHead card={card} />
          <Main card={card} editing={editing} onEdited={() => setEditing(false)}>
            {isDefinitionChange(card) ? (
              <DefinitionChanges action={card} />
            ) : (
              hasDetails(card) && <Details card={card} tab={tab} onTab={setTab} onOpenFold={see} />
            )}
          </Main>
          <div ref={mark} />
          <Outcome card={card} />
          <RailRows card={card} />
          {!phone && <LikeIt card={card} />}
        </div>
        <Rail card={card}>
          <BeforeThis card={card} />
        </Rail>
      </div>
      {!editing && (
        <AnswerBar
          key={card.id}
          ref={bar}
          card={card}
          open={open}
          quiet={phone && !seen}
          form={form}
          onForm={setForm}
          onEdit={() => setEditing(true)}
          onNext={onNext}
        />
      )}
    </article>
  );
}

/** A question of a tool that takes no arguments has nothing to show but itself. */
function hasDetails(card: CardData): boolean {
  return card.kind === 'approval' || card.preview !== null || Object.keys(card.arguments).length > 0;
}

/** The preview, and while the arguments are edited the form below it. */
function Main({
  card,
  editing,
  onEdited,
  children,
}: {
  card: CardData;
  editing: boolean;
  onEdited: () => void;
  children: ReactNode;
}) {
  return (
    <>
      {children}
      {editing && (
        <Suspense>
          <EditForm card={card} onClose={onEdited} />
        </Suspense>
      )}
    </>
  );
}
