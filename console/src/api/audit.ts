/** What the page Audit fetches. */

import { queryOptions } from '@tanstack/react-query';

import { requestTo, send } from './client';
import type { Event } from './types';

/** All events of the tenant, newest first. */
export const auditQuery = queryOptions({
  queryKey: ['audit'],
  queryFn: async ({ signal }) => {
    const response = await send(requestTo('/api/v1/audit', { signal }));
    const lines = (await response.text()).split('\n').filter((line) => line !== '');
    return lines.map((line) => JSON.parse(line) as Event).reverse();
  },
});
