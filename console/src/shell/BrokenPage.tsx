import type { ErrorComponentProps } from '@tanstack/react-router';

import { Button } from '../ui/Button';
import { Foreign } from '../ui/Foreign';
import { Empty } from '../ui/States';
import { words } from '../words';

/** A page that cannot be shown, such as one whose file a newer gateway no longer has. The other pages go on. */
export function BrokenPage({ error }: ErrorComponentProps) {
  return (
    <Empty title={words.brokenPage} actions={<Button onClick={() => location.reload()}>{words.banner.reload}</Button>}>
      <Foreign text={error instanceof Error ? error.message : String(error)} block />
    </Empty>
  );
}
