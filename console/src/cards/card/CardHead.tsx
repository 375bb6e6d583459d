import { CardHead as Head } from '@toolpost/approval-card/card/CardHead';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useEffect, useRef } from 'react';

import { toolQuery } from '../../api/queries';
import type { Card } from '../../api/types';

/** The head of a card, with what the catalog says of the tool and a link to the run. */
export function CardHead({ card }: { card: Card }) {
  const heading = useRef<HTMLHeadingElement>(null);
  const tool = useQuery(toolQuery(card.tool_name)).data;
  useEffect(() => {
    heading.current?.focus({ preventScroll: true });
  }, [card.id]);
  return (
    <Head
      action={card}
      description={tool?.description}
      heading={heading}
      run={
        <Link to="/runs/$id" params={{ id: card.run_id }} className="link" title={card.run_id}>
          {shortId(card.run_id)}
        </Link>
      }
    />
  );
}

/** Identifiers are long; their first characters tell one from another on a page. */
export function shortId(id: string): string {
  return id.length > 14 ? id.slice(0, 12) : id;
}
