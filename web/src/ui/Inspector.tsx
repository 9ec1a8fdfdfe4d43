/** One event: its envelope as a tree, and how each dialect spells it. */

import { useEffect, useState } from "react";
import { look } from "../live/server.js";
import type { AgentEvent } from "../model/client.js";
import { fieldText } from "../model/fields.js";
import { size } from "../model/text.js";
import { Icon } from "./Icons.js";
import { copy, Data } from "./Prose.js";
import { Tree } from "./Tree.js";

interface Props {
  event: AgentEvent;
  sessionId: string;
  onClose: () => void;
  onTurn: (turnId: string) => void;
  onCurl: () => Promise<void>;
}

const DIALECTS = ["documented", "runtime", "A2A"] as const;

export function Inspector({ event, sessionId, onClose, onTurn, onCurl }: Props) {
  const [view, setView] = useState<"tree" | "dialects">("tree");
  const [said, setSaid] = useState("");
  const turnId = fieldText(event, "turnId");
  useEffect(() => setSaid(""), [event]);
  const tell = (done: Promise<void>) => void done.then(() => setSaid("Copied"));
  return (
    <section className="inspector" aria-label="Event">
      <div className="inspector-head">
        <h2>{event.type}</h2>
        <button type="button" className="bare" aria-label="Close the event" onClick={onClose}>
          <Icon name="close" />
        </button>
      </div>
      <p className="id">{event.id}</p>
      <div className="actions">
        <button type="button" className="quiet" onClick={() => tell(onCurl())}>
          Copy curl from here
        </button>
        <button type="button" className="quiet" onClick={() => tell(copy(JSON.stringify(event)))}>
          Copy JSON
        </button>
        {turnId !== "" && (
          <button type="button" className="quiet" onClick={() => onTurn(turnId)}>
            Only this turn
          </button>
        )}
        <span role="status" className="small">
          {said}
        </span>
      </div>
      <div className="tabs" role="tablist" aria-label="How to show the event">
        {(["tree", "dialects"] as const).map((each) => (
          <button key={each} type="button" role="tab" aria-selected={view === each} onClick={() => setView(each)}>
            {each === "tree" ? "JSON" : "Dialects"}
          </button>
        ))}
      </div>
      <div className="inspector-body" role="tabpanel" tabIndex={0} aria-label={view === "tree" ? "JSON" : "Dialects"}>
        {view === "tree" ? <Tree key={event.id} value={event} /> : <Dialects event={event} sessionId={sessionId} />}
      </div>
    </section>
  );
}

/** The event in each dialect's own words; what a dialect says nothing of is nothing there. */
function Dialects({ event, sessionId }: { event: AgentEvent; sessionId: string }) {
  const [runtime, a2a] = [useSpelling("/ui/api/v1/sessions/events/spelling", event, sessionId), useSpelling("/a2a/spelling", event, sessionId)];
  return (
    <div className="dialects">
      {DIALECTS.map((name, at) => (
        <div key={name}>
          <h3>{name}</h3>
          {at === 0 ? <Data value={event} /> : <Spelled found={at === 1 ? runtime : a2a} />}
        </div>
      ))}
    </div>
  );
}

type Spelling = unknown[] | string | undefined;

function Spelled({ found }: { found: Spelling }) {
  if (found === undefined) return <p className="small">Asking…</p>;
  if (typeof found === "string") return <p className="small">{found}</p>;
  if (found.length === 0) return <p className="small">This dialect says nothing of it.</p>;
  return found.map((each, at) => <Data key={at} value={each} />);
}

const LARGEST = 2_000_000;

function useSpelling(path: string, event: AgentEvent, sessionId: string): Spelling {
  const [found, setFound] = useState<Spelling>();
  useEffect(() => {
    const stop = new AbortController();
    setFound(undefined);
    const params = new URLSearchParams({ sessionId, eventId: event.id });
    look(`${path}?${params}`, stop.signal)
      .then(async (answer) => {
        const text = await answer.text();
        if (!answer.ok) setFound("It can't be told.");
        else if (text.length > LARGEST) setFound(`${size(text.length)}: too much to show.`);
        else setFound((JSON.parse(text) as { events: unknown[] }).events);
      })
      .catch(() => stop.signal.aborted || setFound("The server can't be reached."));
    return () => stop.abort();
  }, [path, event.id, sessionId]);
  return found;
}
