import { Shell } from './Shell';

/** What every page is inside of. */
export function Root() {
  return <Shell />;
}
