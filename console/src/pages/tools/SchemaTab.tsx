import { useState } from 'react';

import type { Tool } from '../../api/types';
import { fromPlain, stringify } from '../../schema/json';
import { CopyButton } from '../../ui/Copy';
import { Segmented } from '../../ui/Tabs';
import { JsonTree } from '../../views/JsonTree';
import { toolWords } from '../../words';
import { SchemaTree } from './SchemaTree';
import styles from './Tabs.module.css';

type View = 'properties' | 'raw' | 'openai' | 'anthropic' | 'mcp';

/** Input and output of a tool as a table of properties, as JSON, and as models see it. */
export function SchemaTab({ tool }: { tool: Tool }) {
  const [view, setView] = useState<View>('properties');
  const { definitions } = tool;
  const items = [
    { value: 'properties' as const, label: toolWords.properties },
    { value: 'raw' as const, label: toolWords.raw },
    ...(definitions
      ? [
          { value: 'openai' as const, label: 'OpenAI' },
          { value: 'anthropic' as const, label: 'Anthropic' },
          { value: 'mcp' as const, label: 'MCP' },
        ]
      : []),
  ];
  const definition = view === 'openai' || view === 'anthropic' || view === 'mcp' ? definitions?.[view] : undefined;
  return (
    <div className={styles.padded}>
      <div className="row wrap">
        <Segmented label={toolWords.schema} items={items} value={view} onChange={setView} />
        {definition && definitions && view === 'openai' && <span className="faint">{toolWords.tokens(definitions.tokens, definitions.tokenizer)}</span>}
      </div>
      {definition ? (
        <Raw title={items.find((item) => item.value === view)?.label ?? ''} value={definition} />
      ) : view === 'raw' ? (
        <>
          <Raw title={toolWords.input} value={tool.input_schema} />
          {tool.output_schema && <Raw title={toolWords.output} value={tool.output_schema} />}
        </>
      ) : (
        <>
          <Section title={toolWords.input}>
            <SchemaTree schema={tool.input_schema} />
          </Section>
          <Section title={toolWords.output}>
            {tool.output_schema ? <SchemaTree schema={tool.output_schema} /> : <p className="soft">{toolWords.noOutput}</p>}
          </Section>
        </>
      )}
    </div>
  );
}

function Raw({ title, value }: { title: string; value: unknown }) {
  const json = fromPlain(value);
  return (
    <Section title={title} action={<CopyButton text={stringify(json, 2)} />}>
      <JsonTree value={json} height={560} />
    </Section>
  );
}

function Section({ title, action, children }: { title: string; action?: React.ReactNode; children: React.ReactNode }) {
  return (
    <section className={styles.section}>
      <div className="row">
        <h3>{title}</h3>
        {action}
      </div>
      {children}
    </section>
  );
}
