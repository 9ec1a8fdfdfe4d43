/** Above every view: what it shows, how the connection is, and the way to the other views. */

import { useEffect, useRef, useState } from "react";
import { explain } from "../live/server.js";
import type { Connection, LiveSession } from "../live/session.js";
import type { Sessions } from "../live/sessions.js";
import { titleOf } from "../live/sessions.js";
import { useStore } from "../live/store.js";
import { client } from "../live/server.js";
import type { Route, View } from "../model/route.js";
import { hashOf, VIEWS } from "../model/route.js";
import { Icon } from "./Icons.js";

const NAMES: Record<View, string> = {
  conversation: "Conversation",
  timeline: "Timeline",
  events: "Events",
  replay: "Replay",
};

const STATES: Record<Connection, string> = {
  connecting: "Connecting…",
  live: "Live",
  reconnecting: "Reconnecting…",
  paused: "Paused",
  closed: "Closed",
};

interface Props {
  route: Route;
  live: LiveSession | undefined;
  sessions: Sessions;
  isMenuOpen: boolean;
  onMenu: () => void;
}

export function Header({ route, live, sessions, isMenuOpen, onMenu }: Props) {
  return (
    <header className="bar">
      <div className="bar-line">
        <button type="button" className="bare" id="menu" aria-controls="sidebar" aria-expanded={isMenuOpen} onClick={onMenu}>
          <Icon name="menu" size={20} />
          <span className="hidden-text">Sessions</span>
        </button>
        {live ? (
          <Named live={live} sessions={sessions} />
        ) : (
          <h1 id="title">{route.name === "server" ? "Server" : "New session"}</h1>
        )}
        {live ? (
          <State live={live} />
        ) : (
          <Reachable sessions={sessions} />
        )}
      </div>
      {route.name === "session" && (
        <nav className="views" aria-label="Views">
          {VIEWS.map((view) => (
            <a key={view} href={hashOf(route.id, view)} aria-current={view === route.view ? "page" : undefined}>
              {NAMES[view]}
            </a>
          ))}
        </nav>
      )}
    </header>
  );
}

/** Whether the server answers, where no session says so. */
function Reachable({ sessions }: { sessions: Sessions }) {
  const { problem } = useStore(sessions.state);
  const isReady = problem === "";
  return (
    <p id="connection" role="status" data-state={isReady ? "idle" : "reconnecting"} title={problem || undefined}>
      {isReady ? "Ready" : STATES.reconnecting}
    </p>
  );
}

function State({ live }: { live: LiveSession }) {
  const { connection, trouble } = useStore(live.state);
  return (
    <p id="connection" role="status" data-state={connection} title={trouble || undefined}>
      {STATES[connection]}
    </p>
  );
}

function Named({ live, sessions }: { live: LiveSession; sessions: Sessions }) {
  const { details } = useStore(live.state);
  const listed = useStore(sessions.state).sessions.find(({ id }) => id === live.id) ?? details;
  const [isEditing, setEditing] = useState(false);
  const [problem, setProblem] = useState("");
  const title = listed ? titleOf(listed) : "Session";
  const pencil = useRef<HTMLButtonElement>(null);
  const wasEditing = useRef(false);
  useEffect(() => {
    if (wasEditing.current && !isEditing) pencil.current?.focus(); // the field that had it is gone
    wasEditing.current = isEditing;
  }, [isEditing]);

  const save = async (name: string, tags: string[]) => {
    setEditing(false);
    try {
      await client.session(live.id).update({ name, tags });
      await Promise.all([sessions.refresh(), live.readDetails()]);
      setProblem("");
    } catch (error) {
      setProblem(explain(error));
    }
  };

  if (isEditing) {
    return (
      <form
        className="rename"
        onSubmit={(event) => {
          event.preventDefault();
          const fields = new FormData(event.currentTarget);
          const tags = String(fields.get("tags")).split(",").map((tag) => tag.trim());
          void save(String(fields.get("name")).trim(), tags.filter((tag) => tag !== ""));
        }}
        onKeyDown={(event) => event.key === "Escape" && setEditing(false)}
      >
        <input name="name" aria-label="Name" defaultValue={listed?.name ?? ""} maxLength={200} autoFocus />
        <input name="tags" aria-label="Tags, by comma" defaultValue={listed?.tags.join(", ")} placeholder="tags, by comma" />
        <button type="submit" className="primary">
          Save
        </button>
        <button type="button" className="quiet" onClick={() => setEditing(false)}>
          Cancel
        </button>
      </form>
    );
  }
  return (
    <div className="named">
      <h1 id="title">
        <bdi>{title}</bdi>
      </h1>
      {listed && (
        <>
          <button ref={pencil} type="button" className="bare" aria-label="Rename the session" onClick={() => setEditing(true)}>
            <Icon name="pencil" />
          </button>
          <span className="tags">
            <span className="agent">{listed.agent}</span>
            {listed.tags.map((tag, at) => (
              <span key={at} className="tag">
                <bdi>{tag}</bdi>
              </span>
            ))}
          </span>
        </>
      )}
      {problem && <span role="alert">{problem}</span>}
    </div>
  );
}
