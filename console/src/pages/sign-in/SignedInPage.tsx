import { Navigate, useSearch } from '@tanstack/react-router';

import { isOwnPath } from '../../own-path';

/** `/sign-in?to=…` for who is signed in already: the page they came for. */
export default function SignedInPage() {
  const { to } = useSearch({ from: '/sign-in' });
  return <Navigate to={to !== undefined && isOwnPath(to) ? to : '/'} replace />;
}
