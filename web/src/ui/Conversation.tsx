/** The conversation of a session: it follows its end unless somebody scrolled up, and reads earlier turns on the way. */

import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";
import { hasPointer } from "../live/browser.js";
import type { LiveSession } from "../live/session.js";
import { explain } from "../live/server.js";
import { useStore } from "../live/store.js";
import { lastWords } from "../model/conversation.js";
import type { Query } from "../model/client.js";
import { oneLine } from "../model/text.js";
import { promptOf } from "../model/trace.js";
import type { Transport } from "../live/session.js";
import { Composer } from "./Composer.js";
import { Icon } from "./Icons.js";
import { BlockView } from "./Items.js";

const NEAR_END = 80;

interface Props {
  live: LiveSession;
  transport: Transport;
  onTransport: (transport: Transport) => void;
  onTurn: () => void;
  draft: { text: string; problem: string } | undefined;
}

export function Conversation({ live, transport, onTransport, onTurn, draft }: Props) {
  const { conversation, queue, hasEarlier, isReadingEarlier, problem } = useStore(live.state);
  const [trouble, setTrouble] = useState(draft?.problem ?? "");
  const { scroller, isAtEnd, showEnd } = useEnd(conversation, () => void live.readEarlier());
  const { runningTurn, isOver } = conversation;
  const said = useAnnouncement(conversation.runningTurn, () => lastWords(live.state.get().conversation));
  useEffect(onTurn, [runningTurn, onTurn]);

  const send = async (_: string, query: Query) => {
    setTrouble("");
    showEnd();
    try {
      await live.send(query);
    } catch (error) {
      setTrouble(explain(error));
      throw error;
    }
  };
  const stop = (turnId: string | undefined) => live.abort(turnId).catch((error: unknown) => setTrouble(explain(error)));

  return (
    <div className="conversation">
      <div id="scroller" ref={scroller} tabIndex={0} role="region" aria-label="Conversation">
        <div id="log">
          {hasEarlier && (
            <button type="button" className="quiet earlier" disabled={isReadingEarlier} onClick={() => void live.readEarlier()}>
              {isReadingEarlier ? "Reading…" : "Show earlier turns"}
            </button>
          )}
          {conversation.blocks.map((block) => (
            <BlockView key={block.key} block={block} />
          ))}
          {isOver && <p className="over">This session was deleted.</p>}
          {conversation.blocks.length === 0 && !hasEarlier && !isOver && problem === "" && (
            <p className="over">Nothing was said here yet.</p>
          )}
          {runningTurn !== undefined && (
            <p id="working">
              <span className="dots" aria-hidden="true">
                <i />
                <i />
                <i />
              </span>
              Working
            </p>
          )}
        </div>
      </div>
      <p id="announcer" className="hidden-text" aria-live="polite">
        {said}
      </p>
      {!isAtEnd && (
        <button type="button" id="latest" onClick={showEnd}>
          <Icon name="down" /> Latest
        </button>
      )}
      {queue.length > 0 && (
        <ol className="queue" aria-label="Waiting">
          {queue.map((waiting) => (
            <li key={waiting.turnId}>
              <Icon name="queue" />
              <span className="small">Next {waiting.position}</span>
              <span className="words">{oneLine(promptOf(waiting.query), 120)}</span>
              <button
                type="button"
                className="bare"
                aria-label={`Remove ${oneLine(promptOf(waiting.query), 40)} from the queue`}
                onClick={() => void stop(waiting.turnId)}
              >
                <Icon name="close" />
              </button>
            </li>
          ))}
        </ol>
      )}
      <Composer
        place={live.id}
        isRunning={runningTurn !== undefined}
        isOver={isOver || problem !== ""}
        problem={problem || trouble}
        onSend={send}
        onStop={() => void stop(runningTurn)}
        transport={transport}
        onTransport={onTransport}
        isFocused={hasPointer()}
        text={draft?.text ?? ""}
      />
    </div>
  );
}

/** Keeps the end in sight while it grows; what is read above does not move what is looked at. */
function useEnd(content: unknown, onTop: () => void) {
  const scroller = useRef<HTMLDivElement>(null);
  const isFollowing = useRef(true);
  const height = useRef(0);
  const [isAtEnd, setAtEnd] = useState(true);
  const showEnd = useCallback(() => {
    const node = scroller.current;
    isFollowing.current = true;
    if (node) node.scrollTop = node.scrollHeight;
    setAtEnd(true);
  }, []);

  useEffect(() => {
    const node = scroller.current;
    if (!node) return;
    const look = () => {
      const rest = node.scrollHeight - node.scrollTop - node.clientHeight;
      isFollowing.current = rest < NEAR_END;
      setAtEnd(rest < NEAR_END * 3);
      if (node.scrollTop < 200 && !isFollowing.current) onTop();
    };
    node.addEventListener("scroll", look, { passive: true });
    const grown = new ResizeObserver(() => {
      if (isFollowing.current) node.scrollTop = node.scrollHeight;
    });
    if (node.firstElementChild) grown.observe(node.firstElementChild);
    grown.observe(node);
    return () => {
      node.removeEventListener("scroll", look);
      grown.disconnect();
    };
  }, []);

  const first = (content as { blocks: readonly { key: string }[] }).blocks[0]?.key;
  const firstBefore = useRef(first);
  useLayoutEffect(() => {
    const node = scroller.current;
    if (!node) return;
    if (isFollowing.current) node.scrollTop = node.scrollHeight;
    else if (first !== firstBefore.current) node.scrollTop += node.scrollHeight - height.current;
    firstBefore.current = first;
    height.current = node.scrollHeight;
  }, [content]);
  return { scroller, isAtEnd, showEnd };
}

/** What to say to those who hear the page: how a turn ended that they saw running. */
function useAnnouncement(runningTurn: string | undefined, words: () => string): string {
  const [said, setSaid] = useState("");
  const before = useRef(runningTurn);
  useEffect(() => {
    if (before.current !== undefined && runningTurn === undefined) setSaid(words());
    before.current = runningTurn;
  }, [runningTurn]);
  return said.slice(0, 2000);
}
