import { useQueryClient } from '@tanstack/react-query';
import { useEffect } from 'react';

import { useSession } from '../api/session';
import { applyEvents, applyGap } from '../live/apply';
import { startLive } from '../live/live';
import { forgetRecent } from '../live/recent';
import { SignIn } from '../pages/sign-in/SignIn';
import { Shell } from './Shell';
import { useArrivedTicket } from '../pages/sign-in/ticket';
import { useShownPerson } from './person';

/** What every page is inside of: nothing without a session; the sign-in lies over the page when the session ends. */
export function Root() {
  const session = useSession();
  const person = useShownPerson();
  const ticket = useArrivedTicket();
  const busy = ticket.state === 'redeeming' || ticket.state === 'confirm';
  return (
    <>
      {person && ticket.state !== 'redeeming' && <SignedIn key={person} />}
      {(!session || busy || ticket.state === 'failed') && <SignIn ticket={ticket} over={person !== undefined} />}
    </>
  );
}

/** The pages of one person; another person gets new ones, and an empty cache. */
function SignedIn() {
  const cache = useQueryClient();
  const token = useSession()?.token;
  useEffect(() => {
    if (token === undefined) return undefined;
    return startLive(
      (events) => applyEvents(cache, events),
      () => applyGap(cache),
    );
  }, [token, cache]);
  useEffect(
    () => () => {
      cache.clear();
      forgetRecent();
    },
    [cache],
  );
  return <Shell />;
}
