/** Words of the page Audit. */

export const auditWords = {
  time: 'Time',
  event: 'Event',
  tool: 'Tool',
  user: 'User',
  run: 'Run',
  list: 'Events',
  count: (count: number) => `${count.toLocaleString()} ${count === 1 ? 'event' : 'events'}`,
  empty: 'No events yet. Each call, approval and change of the configuration is recorded here.',
  emptyFilter: 'No events match these filters.',
};
