import { useNavigate } from '@tanstack/react-router';

import { dropSession, session, useMe } from '../api/session';
import { endSession } from '../pages/sign-in/ticket';
import { Foreign } from '../ui/Foreign';
import { SettingsIcon, SignOutIcon } from '../ui/icons';
import { Menu, MenuItem, MenuLine } from '../ui/Menu';
import { words } from '../words';
import styles from './Shell.module.css';

/** Who is signed in, and as what; opens settings and signs out. */
export function PersonMenu() {
  const me = useMe();
  const navigate = useNavigate();
  const name = me.user.slice(me.user.indexOf(':') + 1);
  return (
    <Menu
      trigger={
        <button type="button" className={styles.me} title={words.shell.account}>
          <span className={styles.avatar}>{name.slice(0, 2)}</span>
          <span className={`${styles.word ?? ''} cut`}>
            <span className="medium">
              <Foreign text={name} />
            </span>
            <br />
            <span className="t11 faint">
              <Foreign text={me.user} /> · {roleOf(me)}
            </span>
          </span>
        </button>
      }
    >
      <MenuItem
        icon={SettingsIcon}
        onSelect={() => void navigate({ to: '/settings/$section', params: { section: 'sessions' } })}
      >
        {words.shell.settings}
      </MenuItem>
      <MenuLine />
      <MenuItem icon={SignOutIcon} onSelect={signOut}>
        {words.shell.signOut}
      </MenuItem>
    </Menu>
  );
}

function roleOf({ operator, scopes }: { operator: boolean; scopes: string[] }): string {
  const roles = words.shell.roles;
  if (operator) return roles.operator;
  if (scopes.includes('admin')) return roles.admin;
  if (scopes.includes('answer')) return roles.answer;
  return scopes.includes('call') ? roles.call : roles.none;
}

function signOut() {
  const signedIn = session();
  if (!signedIn) return;
  void endSession(signedIn).finally(() => {
    dropSession(signedIn.token);
    location.reload();
  });
}
