import { words } from '../words';
import { Chip } from './Chip';
import { classes } from './classes';
import { mixesScripts } from './foreign-text';
import { Foreign } from './Foreign';
import styles from './ToolName.module.css';

/** The name of a tool: its namespace faint, the rest strong, look-alike letters marked. */
export function ToolName({ name, large }: { name: string; large?: boolean }) {
  const dot = name.lastIndexOf('.') + 1;
  return (
    <>
      <span className={classes(styles.name, large && styles.large)}>
        {dot > 0 && (
          <span className={styles.namespace}>
            <Foreign text={name.slice(0, dot)} />
          </span>
        )}
        <Foreign text={name.slice(dot)} />
      </span>
      {mixesScripts(name) && <Chip tone="taint">{words.mixedScripts}</Chip>}
    </>
  );
}
