import type { ErrorComponentProps } from '@tanstack/react-router';
import { useEffect, useRef } from 'react';

import { useLive } from '../live/live';
import { Button } from '../ui/Button';
import { Foreign } from '../ui/Foreign';
import { retryParts } from '../ui/lazy-part';
import { Empty } from '../ui/States';
import { words } from '../words';

const MISSING_FILE = /dynamically imported module|importing a module script failed|unable to preload css/i;

/** A page that cannot be shown, such as one whose file a newer gateway no longer has. The other pages still work. */
export function BrokenPage({ error, reset }: ErrorComponentProps) {
  const message = error instanceof Error ? error.message : String(error);
  if (MISSING_FILE.test(message)) return <MissingFile onRetry={reset} />;
  return (
    <div role="alert">
      <Empty title={words.brokenPage} actions={<Button onClick={() => location.reload()}>{words.banner.reload}</Button>}>
        <Foreign text={message} block />
      </Empty>
    </div>
  );
}

/** The file of a page did not come: without a connection it is tried again, otherwise a newer console has other files. */
function MissingFile({ onRetry }: { onRetry: () => void }) {
  const connected = useLive().stream.kind === 'open' && navigator.onLine;
  const was = useRef(connected);
  function retry() {
    retryParts();
    onRetry();
  }
  useEffect(() => {
    if (connected && !was.current) retry();
    was.current = connected;
  });
  return (
    <div role="alert">
      {connected ? (
        <Empty title={words.banner.newer} actions={<Button onClick={() => location.reload()}>{words.banner.reload}</Button>} />
      ) : (
        <Empty title={words.unreachable} actions={<Button onClick={retry}>{words.tryAgain}</Button>} />
      )}
    </div>
  );
}
