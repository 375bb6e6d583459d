/** Whether a path is one of this console, not an address elsewhere such as `//example.com`. */
export function isOwnPath(path: string): boolean {
  return /^\/(?![/\\])/.test(path);
}
