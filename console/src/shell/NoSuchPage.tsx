import { Link } from '@tanstack/react-router';

import { buttonClasses } from '../ui/Button';
import { Empty } from '../ui/States';
import { words } from '../words';

export function NoSuchPage() {
  return (
    <Empty
      title={words.noSuchPage}
      actions={
        <Link to="/" className={buttonClasses()}>
          {words.shell.pages.now}
        </Link>
      }
    />
  );
}
