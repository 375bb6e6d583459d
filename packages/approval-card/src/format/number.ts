/** Counts, sizes and parts as the reader's locale writes them. */

const COUNT = new Intl.NumberFormat();
const RATE = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const BYTE_UNITS = ['bytes', 'KB', 'MB', 'GB'] as const;

export function formatCount(count: number): string {
  return COUNT.format(count);
}

/** 23.4 is "23", 0.37 is "0.4", and 0.02 is "< 0.1". */
export function formatRate(rate: number): string {
  if (rate > 0 && rate < 0.05) return '< 0.1';
  return RATE.format(rate < 10 ? Math.round(rate * 10) / 10 : Math.round(rate));
}

/** 2114 is "2.1 KB", 700 is "700 bytes". */
export function formatBytes(bytes: number): string {
  let size = bytes;
  let unit = 0;
  while (size >= 1024 && unit < BYTE_UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  const digits = unit > 0 && size < 100 ? 1 : 0;
  return `${size.toFixed(digits)} ${BYTE_UNITS[unit] ?? ''}`;
}

/** 0.0123 is "1.2 %". */
export function formatPart(part: number): string {
  return `${(part * 100).toFixed(1)} %`;
}
