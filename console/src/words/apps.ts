/** Words of pages that tools bring (MCP Apps). */
export const appWords = {
  title: 'App of this tool',
  of: (source: string) => (source ? `from ${source}` : 'untrusted content'),
  open: 'Open',
  reload: 'Open again',
  hint: 'The server provides this page. It runs apart from the console; the policy decides about each of its calls.',
  waits: 'A call of the app waits for an answer.',
  openCard: 'Open the approval',
  wantsToOpen: 'The app wants to open',
  openLink: 'Open the link',
};
