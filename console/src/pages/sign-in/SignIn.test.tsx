import { expect, it, vi } from 'vitest';

import { show } from '../../testing';
import { SignIn } from './SignIn';

vi.mock('../../api/address', () => ({
  BASE_PATH: '/tools-gateway',
  ORIGIN: 'https://example.com',
  BASE_URL: 'https://example.com/tools-gateway',
}));
vi.mock('./issuer', () => ({ useIssuer: () => true, noteStart: () => undefined }));

it('returns from the issuer to the page below the prefix of a proxy', () => {
  history.replaceState(null, '', '/tools-gateway/runs?status=failed');
  const link = show(<SignIn ticket={{ state: 'none' }} over={false} />).querySelector('a');

  expect(link?.href).toBe('https://example.com/tools-gateway/sign-in/start?to=%2Fruns%3Fstatus%3Dfailed');
});
