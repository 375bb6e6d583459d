import { QueryClient } from '@tanstack/react-query';

import { Problem } from './problem';

/** What is fetched and kept. Events keep much of it fresh, so a new window does not fetch again. */
export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 30_000,
      refetchOnWindowFocus: false,
      retry: (count, error) => count < 2 && isPassing(Problem.of(error)),
      retryDelay: (count) => Math.min(500 * 2 ** count, 5_000),
    },
    mutations: { retry: false },
  },
});

function isPassing({ status }: Problem): boolean {
  return status === 0 || status === 502 || status === 503;
}
