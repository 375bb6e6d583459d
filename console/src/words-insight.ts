/** Words of the page Insight. */

export const insightWords = {
  ranges: { '1h': '1 h', '24h': '24 h', '7d': '7 d', '30d': '30 d' },
  range: 'Time range',
  by: { tool: 'Tools', source: 'Sources', user: 'Users', code: 'Errors' },
  byLabel: 'Group by',
  key: { tool: 'Tool', source: 'Source', user: 'User', code: 'Error code' },
  byCalls: (range: string) => `by calls, in ${range}`,
  calls: 'Calls',
  failed: 'Failed',
  p50: 'p50',
  p95: 'p95',
  last: 'Last',
  empty: 'Nothing was called in this window.',
};
