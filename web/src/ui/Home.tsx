/** What a first visitor sees: a field to write in, and what can be asked. */

import { useState } from "react";
import type { Query } from "../model/client.js";
import { explain } from "../live/server.js";
import type { Transport } from "../live/session.js";
import { Composer } from "./Composer.js";

const SUGGESTIONS = [
  ["thinking tools markdown", "Thinks aloud, calls two tools, answers in markdown"],
  ["slow long", "A long answer: reload, or stop it half-way"],
  ["Hello!", "A short answer"],
  ["fail", "A turn that fails, with what it had said"],
] as const;

interface Props {
  onSend: (text: string, query: Query) => Promise<void>;
  transport: Transport;
  onTransport: (transport: Transport) => void;
  isFocused: boolean;
  /** Whether a new session is the demo agent's: other agents know nothing of its words. */
  isDemo: boolean;
}

export function Home({ onSend, transport, onTransport, isFocused, isDemo }: Props) {
  const [problem, setProblem] = useState("");
  const [isSending, setSending] = useState(false);
  const send = async (text: string, query: Query) => {
    setProblem("");
    setSending(true);
    try {
      await onSend(text, query);
    } catch (error) {
      setProblem(explain(error));
      setSending(false);
      throw error;
    }
  };
  return (
    <div className="conversation">
      <div className="home" tabIndex={0} role="region" aria-label="Welcome">
        <h2>What shall we do?</h2>
        <p>
          Every event is stored before it is shown. Reload, lose the connection, open a second tab: the conversation is all
          there, and goes on.
        </p>
        {isDemo && (
          <>
            <p className="small">The demo agent knows these, among others:</p>
            <ul className="suggestions">
              {SUGGESTIONS.map(([text, what]) => (
                <li key={text}>
                  <button type="button" disabled={isSending} onClick={() => void send(text, text).catch(() => {})}>
                    <code>{text}</code>
                    <span>{what}</span>
                  </button>
                </li>
              ))}
            </ul>
          </>
        )}
      </div>
      <Composer
        place="new"
        isRunning={false}
        isOver={false}
        problem={problem}
        text=""
        isFocused={isFocused}
        transport={transport}
        onTransport={onTransport}
        onSend={send}
        onStop={() => {}}
      />
    </div>
  );
}
