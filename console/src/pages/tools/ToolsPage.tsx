import { useParams, useSearch } from '@tanstack/react-router';

import { classes } from '../../ui/classes';
import { useDesktop } from '../../ui/media';
import { Empty } from '../../ui/States';
import { toolWords } from '../../words';
import { ToolDetail } from './ToolDetail';
import { ToolList } from './ToolList';
import styles from './Tools.module.css';

/** The list of tools and one tool beside it; on smaller screens one of the two. */
export default function ToolsPage() {
  const { name } = useParams({ strict: false });
  const search = useSearch({ strict: false });
  const desktop = useDesktop();
  return (
    <div className={classes(styles.split, !desktop && styles.single)}>
      {(desktop || name === undefined) && <ToolList filters={search} selected={name} />}
      {name !== undefined && <ToolDetail key={name} name={name} tab={search.tab ?? 'try'} />}
      {desktop && name === undefined && <Empty title={toolWords.choose}>{toolWords.chooseHint}</Empty>}
    </div>
  );
}
