import { useMutation } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useEffect, useRef, useState } from 'react';

import { callForApp, openApp } from '../api/apps';
import type { Outcome, Tool } from '../api/types';
import { Button } from '../ui/Button';
import { Chip } from '../ui/Chip';
import { Foreign } from '../ui/Foreign';
import { UntrustedIcon } from '../ui/icons';
import { Failure } from '../ui/States';
import { useMedia } from '../ui/media';
import { appWords } from '../words';
import { answerTo, messageOf, toolResult, type AppHost } from './app-bridge';
import styles from './AppFrame.module.css';

const LOWEST = 120;
const HIGHEST = 720;

interface AppFrameProps {
  tool: Tool;
  /** The arguments of the call, as JSON text. */
  argumentsText: string;
  outcome: Outcome | undefined;
}

/** The page of a tool (MCP Apps). It opens by a press, in a frame of another origin that may run scripts and nothing else. */
export default function AppFrame(props: AppFrameProps) {
  const { tool } = props;
  const open = useMutation({ mutationFn: () => openApp(tool.name) });
  return (
    <section className={styles.app} aria-label={appWords.title}>
      <div className="row wrap">
        <h3>{appWords.title}</h3>
        <Chip tone="taint" icon={UntrustedIcon}>
          <Foreign text={appWords.of(tool.source ?? '')} />
        </Chip>
        <span className="end">
          <Button disabled={open.isPending} onClick={() => open.mutate()}>
            {open.data ? appWords.reload : appWords.open}
          </Button>
        </span>
      </div>
      {!open.data && <p className="faint t12">{appWords.hint}</p>}
      {open.error && <Failure inline error={open.error} />}
      {open.data && <Frame key={open.data} address={open.data} {...props} />}
    </section>
  );
}

function Frame({ address, tool, argumentsText, outcome }: AppFrameProps & { address: string }) {
  const frame = useRef<HTMLIFrameElement>(null);
  const dark = useMedia('(prefers-color-scheme: dark)');
  const [height, setHeight] = useState(LOWEST * 2);
  const [ready, setReady] = useState(false);
  const [link, setLink] = useState<string>();
  const [waiting, setWaiting] = useState<string>();

  useEffect(() => {
    const host: AppHost = {
      theme: dark ? 'dark' : 'light',
      call: async (name, values) => {
        const called = await callForApp(`${tool.source ?? ''}.${name}`, values);
        if (called.status === 'paused') setWaiting(called.pending?.id);
        return called;
      },
      openLink: setLink,
      onReady: () => setReady(true),
      onHeight: (wanted) => setHeight(Math.min(HIGHEST, Math.max(LOWEST, wanted))),
    };
    function listen({ source, data }: MessageEvent) {
      const message = messageOf(data);
      const target = frame.current?.contentWindow;
      if (!message || !target || source !== target) return;
      // Its origin is opaque, so no other target can be named; what is sent is what the page asked for.
      void answerTo(message, host).then((answer) => answer && target.postMessage(answer, '*'));
    }
    window.addEventListener('message', listen);
    return () => window.removeEventListener('message', listen);
  }, [tool.source, dark]);

  useEffect(() => {
    if (!ready || !outcome || outcome.status === 'paused') return;
    const post = (method: string, params: unknown) => frame.current?.contentWindow?.postMessage({ jsonrpc: '2.0', method, params }, '*');
    post('ui/notifications/tool-input', { arguments: JSON.parse(argumentsText) as unknown });
    post('ui/notifications/tool-result', toolResult(outcome));
    // The arguments are those of the call that ended, not what is typed after it.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [ready, outcome]);

  return (
    <>
      {/* eslint-disable-next-line no-restricted-syntax -- the one frame that the policy permits: sandboxed, without an origin */}
      <iframe ref={frame} className={styles.frame} title={appWords.title} sandbox="allow-scripts" src={address} style={{ height }} />
      {waiting !== undefined && (
        <p className="wait-ink">
          {appWords.waits}{' '}
          <Link to="/approvals/$id" params={{ id: waiting }} className="link">
            {appWords.openCard}
          </Link>
        </p>
      )}
      {link !== undefined && (
        <p className="row wrap">
          {appWords.wantsToOpen} <Foreign text={link} className="mono" limit={200} />
          <a className="link" href={link} target="_blank" rel="noopener noreferrer" onClick={() => setLink(undefined)}>
            {appWords.openLink}
          </a>
        </p>
      )}
    </>
  );
}
