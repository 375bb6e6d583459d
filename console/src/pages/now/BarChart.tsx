import styles from './now.module.css';

interface BarChartProps {
  calls: readonly (number | null)[];
  failed: readonly (number | null)[];
  asked: readonly (number | null)[];
  label: string;
}

const SLOT = 9;
const BAR = 6.6;
const HEIGHT = 56;

/** A bar for each step: calls, the failed ones at its foot, and a triangle below where a person was asked. */
export function BarChart({ calls, failed, asked, label }: BarChartProps) {
  const most = Math.max(1, ...calls.map((value) => value ?? 0));
  const height = (value: number) => (value / most) * (HEIGHT - 2);
  const width = Math.max(1, calls.length) * SLOT;
  return (
    <svg className={styles.chart} viewBox={`0 0 ${width} 70`} preserveAspectRatio="none" role="img" aria-label={label}>
      {[0.5, HEIGHT / 2, HEIGHT].map((y) => (
        <line key={y} x1={0} x2={width} y1={y} y2={y} stroke="var(--line)" vectorEffect="non-scaling-stroke" />
      ))}
      {calls.map((value, index) => {
        const bad = height(failed[index] ?? 0);
        const all = Math.max(bad, height(value ?? 0));
        const x = index * SLOT + (SLOT - BAR) / 2;
        return (
          <g key={index}>
            {all > bad && (
              <rect
                x={x}
                y={HEIGHT - all}
                width={BAR}
                height={all - bad}
                rx={1.2}
                fill="var(--accent)"
                opacity={index === calls.length - 1 ? 1 : 0.55}
              />
            )}
            {bad > 0 && <rect x={x} y={HEIGHT - bad} width={BAR} height={bad} rx={1.2} fill="var(--fail)" />}
            {(asked[index] ?? 0) > 0 && <path d={`M${x + BAR / 2} 60l3.6 6h-7.2z`} fill="var(--wait)" />}
          </g>
        );
      })}
    </svg>
  );
}

/** A small chart of one series, without axes. */
export function Sparkline({ values }: { values: readonly (number | null)[] }) {
  const most = Math.max(1, ...values.map((value) => value ?? 0));
  return (
    <svg className={styles.spark} viewBox={`0 0 ${Math.max(1, values.length) * 5} 16`} preserveAspectRatio="none" aria-hidden>
      {values.map((value, index) => {
        const height = value ? Math.max(2, (value / most) * 15) : 1;
        return (
          <rect key={index} x={index * 5} y={16 - height} width={4} height={height} fill={value ? 'var(--fail)' : 'var(--line)'} />
        );
      })}
    </svg>
  );
}
