import { beforeEach } from 'vitest';

beforeEach(() => {
  localStorage.clear();
  sessionStorage.clear();
});
Object.assign(globalThis, { IS_REACT_ACT_ENVIRONMENT: true });
