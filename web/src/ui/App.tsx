/** The page: which session is shown in which view, and what the parts tell each other. The address carries both. */

import type { ReactNode } from "react";
import { useCallback, useEffect, useMemo, useState } from "react";
import { hasPointer, memory, useHidden, useRoute } from "../live/browser.js";
import { client, explain, useOverview } from "../live/server.js";
import type { Transport } from "../live/session.js";
import { LiveSession } from "../live/session.js";
import { Sessions, titleOf } from "../live/sessions.js";
import { useStore } from "../live/store.js";
import type { Query } from "../model/client.js";
import type { View } from "../model/route.js";
import { hashOf } from "../model/route.js";
import { nameFrom } from "../model/text.js";
import { Conversation } from "./Conversation.js";
import { EventsView } from "./Events.js";
import { Guard } from "./Guard.js";
import { Header } from "./Header.js";
import { Home } from "./Home.js";
import { ReplayView } from "./Replay.js";
import { ServerView } from "./Server.js";
import { Sidebar } from "./Sidebar.js";
import { TimelineView } from "./Timeline.js";

export function App() {
  const route = useRoute();
  const isHidden = useHidden();
  const [sessions] = useState(() => new Sessions());
  const [isMenuOpen, setMenuOpen] = useState(false);
  const overview = useOverview();
  const [transport, setTransport] = useState<Transport>(memory.get("transport") === "websocket" ? "websocket" : "sse");
  const [draft, setDraft] = useState<{ id: string; text: string; problem: string }>();
  const sessionId = route.name === "session" ? route.id : undefined;
  const live = useMemo(() => (sessionId === undefined ? undefined : new LiveSession(sessionId, transport)), [sessionId]);

  useEffect(() => sessions.watch(), [sessions]);
  useEffect(() => setMenuOpen(false), [route]);
  useEffect(() => {
    if (!live || isHidden) return;
    live.connect();
    const online = () => live.reconnect();
    addEventListener("online", online);
    return () => {
      removeEventListener("online", online);
      live.pause();
    };
  }, [live, isHidden]);
  useEffect(() => {
    const close = (event: KeyboardEvent) => event.key === "Escape" && setMenuOpen(false);
    addEventListener("keydown", close);
    return () => removeEventListener("keydown", close);
  }, []);

  const changeTransport = useCallback(
    (wanted: Transport) => {
      memory.set("transport", wanted);
      setTransport(wanted);
      live?.reconnect(wanted);
    },
    [live],
  );
  const refresh = useCallback(() => void sessions.refresh(), [sessions]);
  const begin = useCallback(
    async (text: string, query: Query) => {
      const session = await client.create({ name: nameFrom(text) || "Pictures" });
      refresh();
      // The session's own connection tells what comes of it; a query that was refused is given back there.
      new LiveSession(session.id, transport).send(query).catch((error: unknown) => {
        setDraft({ id: session.id, text, problem: explain(error) });
      });
      location.hash = hashOf(session.id);
    },
    [refresh, transport],
  );

  const view: View = route.name === "session" ? route.view : "conversation";
  return (
    <div className="page" data-menu={isMenuOpen || undefined}>
      <button type="button" className="skip quiet" onClick={() => document.querySelector("main")?.focus()}>
        Skip to the content
      </button>
      <Sidebar
        sessions={sessions}
        current={sessionId}
        isServer={route.name === "server"}
        principal={overview?.principal}
        onDeleted={(id) => id === sessionId && (location.hash = "")}
      />
      <button type="button" id="veil" tabIndex={-1} aria-label="Close the list of sessions" onClick={() => setMenuOpen(false)} />
      <main tabIndex={-1}>
        <Header
          key={`header ${sessionId ?? route.name}`}
          route={route}
          live={live}
          sessions={sessions}
          isMenuOpen={isMenuOpen}
          onMenu={() => setMenuOpen(!isMenuOpen)}
        />
        {route.name === "home" && <Home onSend={begin} transport={transport} onTransport={changeTransport} isFocused={hasPointer()} isDemo={overview?.agents[0] === "demo"} />}
        {route.name === "server" && (
          <Guard>
            <ServerView isHidden={isHidden} />
          </Guard>
        )}
        {live && (
          <Guard key={`${view} ${live.id}`}>
            <Unless live={live}>
              {view === "conversation" && (
                <Conversation
                  key={String(draft?.id === live.id)}
                  live={live}
                  transport={transport}
                  onTransport={changeTransport}
                  onTurn={refresh}
                  draft={draft?.id === live.id ? draft : undefined}
                />
              )}
              {view === "timeline" && <TimelineView live={live} target={target(route)} />}
              {view === "events" && <EventsView live={live} target={target(route)} />}
              {view === "replay" && <ReplayView live={live} />}
            </Unless>
          </Guard>
        )}
      </main>
      <Title live={live} sessions={sessions} />
    </div>
  );
}

function target(route: ReturnType<typeof useRoute>): string | undefined {
  return route.name === "session" ? route.target : undefined;
}

/** The view, or why there is nothing to see: a session that is not there, or no longer. */
function Unless({ live, children }: { live: LiveSession; children: ReactNode }) {
  const { problem, conversation } = useStore(live.state);
  if (problem === "" || conversation.lastPlace > 0) return children;
  return (
    <div className="empty">
      <p role="alert">{problem}</p>
      <p>
        <a href="#">Begin a new session</a>
      </p>
    </div>
  );
}

/** What the browser's tab says. */
function Title({ live, sessions }: { live: LiveSession | undefined; sessions: Sessions }) {
  const listed = useStore(sessions.state).sessions.find(({ id }) => id === live?.id);
  useEffect(() => {
    document.title = live ? `${listed ? titleOf(listed) : "Session"} · Tarko console` : "Tarko console";
  }, [live, listed]);
  return null;
}
