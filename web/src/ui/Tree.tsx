/** JSON to be unfolded level by level. Only what is unfolded is on the page, and of long things only the beginning. */

import { useState } from "react";
import { size, visible } from "../model/text.js";

const MOST_ENTRIES = 200;
const MOST_TEXT = 2000;

export function Tree({ value, name, depth = 0 }: { value: unknown; name?: string; depth?: number }) {
  const [isOpen, setOpen] = useState(depth < 2);
  const [shown, setShown] = useState(MOST_ENTRIES);
  const label = name === undefined ? null : <span className="key">{visible(name)}</span>;
  if (typeof value !== "object" || value === null) {
    return (
      <div className="leaf">
        {label} <Leaf value={value} />
      </div>
    );
  }
  const isList = Array.isArray(value);
  const entries = Object.entries(value);
  if (entries.length === 0) {
    return (
      <div className="leaf">
        {label} <span>{isList ? "[]" : "{}"}</span>
      </div>
    );
  }
  return (
    <details className="branch" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        {label} <span className="count">{isList ? `[${entries.length}]` : `{${entries.length}}`}</span>
      </summary>
      {isOpen && (
        <div className="twigs">
          {entries.slice(0, shown).map(([key, each]) => (
            <Tree key={key} name={key} value={each} depth={depth + 1} />
          ))}
          {entries.length > shown && (
            <button type="button" className="quiet" onClick={() => setShown(shown * 5)}>
              {entries.length - shown} more
            </button>
          )}
        </div>
      )}
    </details>
  );
}

function Leaf({ value }: { value: unknown }) {
  const [shown, setShown] = useState(MOST_TEXT);
  if (typeof value !== "string") return <span className="atom">{String(value)}</span>;
  return (
    <>
      <span className="text" dir="auto">
        {visible(JSON.stringify(value.slice(0, shown)).slice(1, -1))}
      </span>
      {value.length > shown && (
        <button type="button" className="quiet" onClick={() => setShown(shown * 10)}>
          {size(value.length - shown)} more
        </button>
      )}
    </>
  );
}
