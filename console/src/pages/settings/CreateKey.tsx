import { useMutation } from '@tanstack/react-query';
import { useState, type SubmitEvent } from 'react';

import { BASE_URL } from '../../api/address';
import { api, body } from '../../api/client';
import { keys } from '../../api/queries';
import { queryClient } from '../../api/query-client';
import { Button } from '../../ui/Button';
import { CopyBlock } from '../../ui/Copy';
import { Dialog } from '../../ui/Dialog';
import { Checkbox, Field, Input, Switch } from '../../ui/Field';
import { Select } from '../../ui/Select';
import { Failure } from '../../ui/States';
import { settingsWords } from '../../words';
import { isFor, scopesFor, withScope, type Scope } from './key-rules';
import styles from './settings.module.css';

const say = settingsWords;

type Expiry = keyof typeof say.keyExpiry;

const DAY = 86_400;
const EXPIRY_S: Record<Expiry, number | null> = { never: null, day: DAY, month: 30 * DAY, year: 365 * DAY };
const SCOPES: Record<Scope, string> = {
  call: say.scopeCall,
  answer: say.scopeAnswer,
  admin: say.scopeAdmin,
  observe: say.scopeObserve,
};

/** Create a key, and show it once. */
export function CreateKey({ open, onClose }: { open: boolean; onClose: () => void }) {
  const [secret, setSecret] = useState<string>();
  function close() {
    setSecret(undefined);
    onClose();
  }
  return (
    <Dialog open={open} onClose={close} title={say.newKey}>
      {secret === undefined ? <KeyForm onCreated={setSecret} /> : <CreatedKey secret={secret} onDone={close} />}
    </Dialog>
  );
}

function KeyForm({ onCreated }: { onCreated: (secret: string) => void }) {
  const [name, setName] = useState('');
  const [user, setUser] = useState('');
  const [scopes, setScopes] = useState<readonly Scope[]>(['call']);
  const [person, setPerson] = useState(false);
  const [expiry, setExpiry] = useState<Expiry>('month');
  const create = useMutation({
    mutationFn: () =>
      body(
        api.POST('/api/v1/keys', {
          body: {
            name: name.trim(),
            ...(user.trim() !== '' && { for: user.trim() }),
            scopes: [...scopes],
            expires_in_s: EXPIRY_S[expiry],
            person,
          },
        }),
      ),
    onSuccess: (created) => {
      void queryClient.invalidateQueries({ queryKey: keys.callerKeys });
      onCreated(created.token);
    },
  });

  function changePerson(next: boolean) {
    setPerson(next);
    setScopes(scopesFor(next, scopes));
  }
  function submit(event: SubmitEvent) {
    event.preventDefault();
    if (name.trim() !== '' && scopes.length > 0) create.mutate();
  }

  return (
    <form className={styles.form} onSubmit={submit}>
      <Field label={say.keyName}>
        {(field) => <Input {...field} autoFocus value={name} onChange={(event) => setName(event.target.value)} />}
      </Field>
      <Field label={say.keyFor} hint={say.keyForHint}>
        {(field) => <Input {...field} value={user} onChange={(event) => setUser(event.target.value)} />}
      </Field>
      <fieldset className={styles.line}>
        <legend className={styles.label}>{say.keyScopes}</legend>
        {(Object.keys(SCOPES) as Scope[]).filter((scope) => isFor(person, scope)).map((scope) => (
          <Checkbox
            key={scope}
            label={`${scope}: ${SCOPES[scope]}`}
            checked={scopes.includes(scope)}
            onChange={(event) => setScopes(withScope(scopes, scope, event.target.checked, person))}
          />
        ))}
        {!person && <p className="faint t12">{say.callAlone}</p>}
      </fieldset>
      <Switch label={say.keyPerson} hint={say.keyPersonHint} checked={person} onChange={changePerson} />
      <Field label={say.keyExpires}>
        {(field) => (
          <Select
            id={field.id}
            label={say.keyExpires}
            value={expiry}
            options={(Object.keys(EXPIRY_S) as Expiry[]).map((value) => ({ value, label: say.keyExpiry[value] }))}
            onChange={setExpiry}
          />
        )}
      </Field>
      {create.error && <Failure error={create.error} inline />}
      <div className="row">
        <Button type="submit" look="primary" size="l" disabled={create.isPending || name.trim() === '' || scopes.length === 0}>
          {say.create}
        </Button>
      </div>
    </form>
  );
}

function CreatedKey({ secret, onDone }: { secret: string; onDone: () => void }) {
  return (
    <div className={styles.form}>
      <p className={styles.secret}>{say.keyOnce}</p>
      <CopyBlock text={secret} />
      <p className="soft">{say.keyTry}</p>
      <CopyBlock text={`curl -H "Authorization: Bearer $TOOLPOST_KEY" ${BASE_URL}/api/v1/tools`} />
      <div className="row">
        <Button look="primary" size="l" onClick={onDone}>
          {say.done}
        </Button>
      </div>
    </div>
  );
}
