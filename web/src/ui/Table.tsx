/**
 * A table of which only the rows in sight are on the page. Rows are all of one height. Above 16 million pixels, more
 * than browsers lay out well, the scroll bar stands for the whole and the rows move under it.
 */

import type { ReactNode } from "react";
import { useCallback, useEffect, useImperativeHandle, useLayoutEffect, useRef, useState } from "react";

const ROW = 32;
const TALLEST = 16_000_000;
const MARGIN = 8;

export interface TableHandle {
  /** Brings a row into sight. */
  show(index: number): void;
  focus(): void;
}

interface Props {
  label: string;
  head: ReactNode;
  total: number;
  selected: number | undefined;
  onSelect: (index: number) => void;
  onSight: (from: number, to: number) => void;
  row: (index: number) => ReactNode;
  handle?: React.Ref<TableHandle>;
}

export function Table({ label, head, total, selected, onSelect, onSight, row, handle }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const tall = Math.min(total * ROW, TALLEST);
  const isScaled = total * ROW > TALLEST;
  const inSight = Math.ceil(height / ROW);
  const first = isScaled
    ? Math.round((top / Math.max(1, tall - height)) * Math.max(0, total - inSight + 1))
    : Math.floor(top / ROW);
  const from = Math.max(0, first - MARGIN);
  const to = Math.min(total, first + inSight + MARGIN);

  const show = useCallback(
    (index: number) => {
      const node = box.current;
      if (!node) return;
      if (isScaled) {
        if (index < first || index > first + inSight - 2) {
          node.scrollTop = ((index - 2) / Math.max(1, total - inSight + 1)) * (tall - height);
        }
      } else if (index * ROW < node.scrollTop) node.scrollTop = index * ROW;
      else if ((index + 1) * ROW > node.scrollTop + height) node.scrollTop = (index + 1) * ROW - height;
    },
    [isScaled, first, inSight, total, tall, height],
  );
  useImperativeHandle(handle, () => ({ show, focus: () => box.current?.focus({ preventScroll: true }) }), [show]);
  useLayoutEffect(() => {
    const node = box.current;
    if (!node) return;
    const measured = new ResizeObserver(() => setHeight(node.clientHeight - ROW));
    measured.observe(node);
    return () => measured.disconnect();
  }, []);
  useEffect(() => onSight(from, to - 1), [from, to, onSight]);

  const move = (event: React.KeyboardEvent) => {
    const now = selected ?? -1;
    const steps: Record<string, number> = {
      ArrowDown: now + 1,
      ArrowUp: Math.max(0, now - 1),
      PageDown: now + inSight - 1,
      PageUp: now - inSight + 1,
      Home: 0,
      End: total - 1,
    };
    const wanted = steps[event.key];
    if (wanted === undefined || total === 0) return;
    event.preventDefault();
    const index = Math.min(total - 1, Math.max(0, wanted));
    onSelect(index);
    show(index);
  };

  const rows: ReactNode[] = [];
  for (let index = from; index < to; index += 1) {
    const y = isScaled ? top + (index - first) * ROW : index * ROW;
    rows.push(
      <div
        key={index}
        id={`row-${index}`}
        role="row"
        aria-rowindex={index + 2}
        aria-selected={index === selected}
        className="row"
        style={{ transform: `translateY(${y}px)` }}
        onClick={() => onSelect(index)}
      >
        {row(index)}
      </div>,
    );
  }
  return (
    <div
      className="table"
      ref={box}
      role="grid"
      tabIndex={0}
      aria-label={`${label}: ${total} rows`}
      aria-rowcount={total + 1}
      aria-activedescendant={selected !== undefined && selected >= from && selected < to ? `row-${selected}` : undefined}
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}
      onKeyDown={move}
    >
      <div className="row head" role="row" aria-rowindex={1}>
        {head}
      </div>
      <div className="tall" role="rowgroup" style={{ height: `${tall}px` }}>
        {rows}
      </div>
    </div>
  );
}
