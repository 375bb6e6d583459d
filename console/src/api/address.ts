/** Where this console is served: at the root of the gateway's address, or behind a proxy that adds a prefix. */

// Scripts are in `assets/`, one level below the root.
const ROOT = import.meta.env.PROD ? new URL(/* @vite-ignore */ '..', import.meta.url) : new URL('/', location.href);

/** The path prefix without its last slash: empty in most places. */
export const BASE_PATH = ROOT.pathname.replace(/\/$/, '');
export const ORIGIN = location.origin === 'null' ? 'http://localhost' : location.origin;
export const BASE_URL = `${ORIGIN}${BASE_PATH}`;
