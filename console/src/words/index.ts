/**
 * All words of the console, by the part that says them. Text that the gateway or a tool wrote is never here.
 *
 * Each part is a file, so that a page loads only its own.
 */

export { appWords } from './apps';
export { auditWords } from './audit';
export { schemaWords } from './forms';
export { insightWords } from './insight';
export { runWords } from './runs';
export { settingsWords } from './settings';
export { words } from './shared';
export { sourceWords } from './sources';
export { toolWords } from './tools';
export { viewWords } from './views';
