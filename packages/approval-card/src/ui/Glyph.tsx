import type { Icon as IconType } from '../icons';

/** An icon in the weight of its size; it is decoration, the words beside it say what it means. */
export function Glyph({ icon: Shape, size = 16, className }: { icon: IconType; size?: 12 | 14 | 16 | 20; className?: string }) {
  return <Shape size={size} strokeWidth={size === 12 ? 2.25 : 1.75} aria-hidden className={className} style={{ flex: 'none', verticalAlign: 'middle' }} />;
}
