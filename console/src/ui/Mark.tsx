/** The mark: a post with its clamp. */
export function Mark({ size = 22 }: { size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 24 24" aria-hidden>
      <rect x="1" y="1" width="22" height="22" rx="6" fill="var(--accent)" />
      <path d="M5.5 8.2h13M12 8.2v10.3" stroke="var(--on-accent)" strokeWidth="2.6" strokeLinecap="round" />
      <circle cx="12" cy="8.2" r="2.1" fill="var(--accent)" stroke="var(--on-accent)" strokeWidth="1.7" />
    </svg>
  );
}
