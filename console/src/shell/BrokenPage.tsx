import type { ErrorComponentProps } from '@tanstack/react-router';

import { Button } from '../ui/Button';
import { Foreign } from '../ui/Foreign';
import { Empty } from '../ui/States';
import { words } from '../words';

const MISSING_FILE = /dynamically imported module|importing a module script failed|unable to preload css/i;

/** A page that cannot be shown, such as one whose file a newer gateway no longer has. The other pages go on. */
export function BrokenPage({ error }: ErrorComponentProps) {
  const message = error instanceof Error ? error.message : String(error);
  const isOld = MISSING_FILE.test(message);
  return (
    <div role="alert">
      <Empty
        title={isOld ? words.banner.newer : words.brokenPage}
        actions={<Button onClick={() => location.reload()}>{words.banner.reload}</Button>}
      >
        {!isOld && <Foreign text={message} block />}
      </Empty>
    </div>
  );
}
