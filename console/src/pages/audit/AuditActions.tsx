import { useMutation } from '@tanstack/react-query';
import { useState } from 'react';

import { exportEvents, type EventFilters } from '../../api/audit';
import { verifyEvents, type Verification } from '../../api/verification';
import { saveBlob } from '../../api/artifacts';
import { useMe } from '../../api/session';
import { Button } from '../../ui/Button';
import { Dialog } from '../../ui/Dialog';
import { Foreign } from '../../ui/Foreign';
import { Glyph } from '../../ui/Glyph';
import { DangerIcon, DoneIcon, DownloadIcon } from '../../ui/icons';
import { Menu, MenuItem } from '../../ui/Menu';
import { Failure } from '../../ui/States';
import { auditWords as words } from '../../words';
import styles from './audit.module.css';

const NAMES = { jsonl: 'events.jsonl', csv: 'events.csv' } as const;

/** Save the events that match as a file, and verify the hashes of the log or of the run in the filter. */
export function AuditActions({ filters }: { filters: EventFilters }) {
  const { scopes } = useMe();
  const [isShown, setIsShown] = useState(false);
  const save = useMutation({
    mutationFn: async (format: keyof typeof NAMES) => saveBlob(await exportEvents(filters, format), NAMES[format]),
    onError: () => setIsShown(true),
  });
  const [part, setPart] = useState(0);
  const verify = useMutation({
    onMutate: () => setPart(0),
    mutationFn: () => verifyEvents(filters.run, setPart),
    onSettled: () => setIsShown(true),
  });
  if (!scopes.includes('admin')) return <span className="faint t12">{words.needsAdmin}</span>;
  const close = () => {
    setIsShown(false);
    save.reset();
    verify.reset();
  };
  return (
    <>
      <Button disabled={verify.isPending} onClick={() => verify.mutate()}>
        {verify.isPending ? words.verifying(part) : words.verify}
      </Button>
      <Menu
        trigger={
          <Button icon={DownloadIcon} disabled={save.isPending}>
            {save.isPending ? words.exporting : words.export}
          </Button>
        }
      >
        <MenuItem onSelect={() => save.mutate('jsonl')}>{words.asLines}</MenuItem>
        <MenuItem onSelect={() => save.mutate('csv')}>{words.asCsv}</MenuItem>
      </Menu>
      <Dialog open={isShown} onClose={close} title={save.error ? words.export : words.verify}>
        {save.error && <Failure error={save.error} inline />}
        {verify.error && <Failure error={verify.error} onRetry={() => verify.mutate()} inline />}
        {verify.data && <Found result={verify.data} run={filters.run} />}
      </Dialog>
    </>
  );
}

function Found({ result, run }: { result: Verification; run: string | undefined }) {
  const isGood = result.status === 'verified';
  const unchanged = run === undefined ? words.verified : words.verifiedRun(run);
  return (
    <div className={styles.found}>
      <p className={`row ${isGood ? 'ok-ink' : 'fail-ink'}`}>
        <Glyph icon={isGood ? DoneIcon : DangerIcon} /> <b>{isGood ? unchanged : words.changed}</b>
      </p>
      <ul>
        {result.problems.map((problem) => (
          <li key={problem}>
            <Foreign text={problem} block />
          </li>
        ))}
      </ul>
      <p className="soft">{words.chain}</p>
    </div>
  );
}
