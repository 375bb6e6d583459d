import { Navigate, useSearch } from '@tanstack/react-router';

/** `/sign-in?to=…` for who is signed in already: the page they came for. The path must be one of this console. */
export default function SignedInPage() {
  const { to } = useSearch({ from: '/sign-in' });
  return <Navigate to={to !== undefined && isOwnPath(to) ? to : '/'} replace />;
}

export function isOwnPath(path: string): boolean {
  return /^\/(?![/\\])/.test(path);
}
