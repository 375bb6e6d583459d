import { useState } from 'react';

import { CopyBlock } from '../../ui/Copy';
import { Segmented } from '../../ui/Tabs';
import { toolWords } from '../../words';
import { curlCommand, pythonCode, shellCommand, type CallToCopy } from './elsewhere';
import styles from './TryIt.module.css';

type Format = keyof typeof toolWords.formats;
const WRITERS: Record<Format, (call: CallToCopy) => string> = { shell: shellCommand, curl: curlCommand, python: pythonCode };

/** The same call as a command or as code. */
export function Elsewhere({ call }: { call: CallToCopy }) {
  const [format, setFormat] = useState<Format>('shell');
  const items = Object.entries(toolWords.formats).map(([value, label]) => ({ value: value as Format, label }));
  const text = WRITERS[format](call);
  return (
    <section className={styles.elsewhere}>
      <div className="row wrap">
        <h3>{toolWords.elsewhere}</h3>
        <span className="end">
          <Segmented label={toolWords.elsewhere} items={items} value={format} onChange={setFormat} />
        </span>
      </div>
      <CopyBlock text={text} />
    </section>
  );
}
