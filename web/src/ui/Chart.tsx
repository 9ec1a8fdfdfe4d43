/** Figures over time, small. */

interface Props {
  values: readonly number[];
  label: string;
  height?: number;
  /** The least that the top stands for. */
  least?: number;
}

const WIDTH = 300;

export function Area({ values, label, height = 60, least = 0 }: Props) {
  const top = Math.max(least, ...values) || 1;
  const step = WIDTH / Math.max(1, values.length - 1);
  const points = values.map((value, at) => `${(at * step).toFixed(1)},${(height - 2 - (value / top) * (height - 6)).toFixed(1)}`);
  return (
    <svg className="area" viewBox={`0 0 ${WIDTH} ${height}`} preserveAspectRatio="none" role="img" aria-label={label}>
      {points.length > 1 && (
        <>
          <polygon points={`0,${height} ${points.join(" ")} ${WIDTH},${height}`} />
          <polyline points={points.join(" ")} />
        </>
      )}
    </svg>
  );
}
