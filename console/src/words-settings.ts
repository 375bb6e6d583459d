/** Words of the settings. */

export const settingsWords = {
  sections: {
    keys: 'Keys',
    policy: 'Policy',
    sessions: 'Sessions',
    webhooks: 'Webhooks',
    about: 'About',
    appearance: 'Appearance',
  },
  label: 'Settings',
  appearance: {
    theme: 'Theme',
    themes: { system: 'System', light: 'Light', dark: 'Dark' },
    density: 'Density',
    densities: { compact: 'Compact', comfortable: 'Comfortable' },
    letterKeys: 'Single-letter shortcuts',
    letterKeysHint: 'Such as G then N for the page Now, and A for Approve. Shortcuts with Ctrl or ⌘ always work.',
    stored: 'These settings are kept in this browser.',
  },
};
