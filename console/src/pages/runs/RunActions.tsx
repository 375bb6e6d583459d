import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';

import { api } from '../../api/client';
import { toolQuery } from '../../api/queries';
import { useMe } from '../../api/session';
import type { Run } from '../../api/types';
import { fromPlain, isObject, type Json } from '../../schema/json';
import type { JsonSchema } from '../../schema/resolve';
import { Button } from '../../ui/Button';
import { copyText } from '../../ui/copy-text';
import { AgainIcon, CopyIcon } from '../../ui/icons';
import { Menu, MenuItem } from '../../ui/Menu';
import { toast } from '../../ui/Toast';
import { runWords, toolWords } from '../../words';
import { keepDraft } from '../tools/drafts';
import { curlCommand, pythonCode, shellCommand, type CallToCopy } from '../tools/elsewhere';
import styles from './RunPage.module.css';

const MASK = '[redacted]';
const ANY: JsonSchema = {};

/** Cancel, copy as a command, and call again with the same arguments. */
export function RunActions({ run }: { run: Run }) {
  const navigate = useNavigate();
  const client = useQueryClient();
  const me = useMe();
  /** The call, with the schema of its tool: it is asked for when it is needed, because the tool may be gone. */
  async function callToCopy(): Promise<CallToCopy> {
    const tool = await client.query({ ...toolQuery(run.tool_name), staleTime: 'static' }).catch(() => undefined);
    const schema = tool?.input_schema ?? ANY;
    return { tool: run.tool_name, arguments: unmasked(argumentsOf(run)), schema, url: me.server.public_url };
  }
  async function copy(textOf: (call: CallToCopy) => string) {
    if (await copyText(textOf(await callToCopy()))) toast(runWords.copied);
  }
  async function again() {
    const call = await callToCopy();
    keepDraft(run.tool_name, call.arguments, call.schema);
    await navigate({ to: '/tools/$name', params: { name: run.tool_name } });
  }
  return (
    <span className={styles.actions}>
      {(run.status === 'running' || run.status === 'paused') && <CancelRun id={run.run_id} />}
      <Menu trigger={<Button icon={CopyIcon}>{runWords.copyAs}</Button>}>
        <MenuItem onSelect={() => void copy(shellCommand)}>{toolWords.formats.shell}</MenuItem>
        <MenuItem onSelect={() => void copy(curlCommand)}>{toolWords.formats.curl}</MenuItem>
        <MenuItem onSelect={() => void copy(pythonCode)}>{toolWords.formats.python}</MenuItem>
        <MenuItem onSelect={() => void copy(() => location.href)}>{runWords.copyLink}</MenuItem>
      </Menu>
      <Button icon={AgainIcon} onClick={() => void again()}>
        {runWords.again}
      </Button>
    </span>
  );
}

/** Cancels a run that has not ended. */
function CancelRun({ id }: { id: string }) {
  const cancel = useMutation({ mutationFn: () => api.POST('/api/v1/runs/{run_id}/cancel', { params: { path: { run_id: id } } }) });
  return (
    <Button look="danger" disabled={!cancel.isIdle} title={runWords.cancelHint} onClick={() => cancel.mutate()}>
      {cancel.isIdle ? runWords.cancel : runWords.cancelling}
    </Button>
  );
}

/** The redacted arguments of the outermost call. */
function argumentsOf({ log, call_id: callId }: Run): Json {
  const requested = log?.find((event) => event.type === 'TOOL_CALL_REQUESTED' && event.call_id === callId);
  return fromPlain(requested?.payload.params ?? {});
}

/** Masked values are empty: the log does not have them. */
function unmasked(value: Json): Json {
  if (value === MASK) return '';
  if (Array.isArray(value)) return value.map(unmasked);
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, unmasked(one)]));
}
