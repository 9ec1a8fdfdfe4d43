// The protocol page's React example, whole. `npm install && npm run build`; serve the folder from the server's origin, or
// name its own in TARKO_ALLOWED_ORIGINS. `EventSource` replays the session and resumes by itself.
import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";

function AgentChat({ sessionId }) {
  const [events, setEvents] = useState([]);
  const [isLoading, setIsLoading] = useState(false);

  useEffect(() => {
    const eventSource = new EventSource(`/api/v1/sessions/events/stream?sessionId=${sessionId}`);
    eventSource.onmessage = (event) => {
      const agentEvent = JSON.parse(event.data);
      setEvents((previous) => [...previous, agentEvent]);
      if (agentEvent.type === "assistant_message") setIsLoading(false);
    };
    return () => eventSource.close();
  }, [sessionId]);

  const sendMessage = async (message) => {
    setIsLoading(true);
    await fetch("/api/v1/sessions/query", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ sessionId, query: message }),
    });
  };

  const submit = (event) => {
    event.preventDefault();
    // A connection that breaks stops nothing: what the turn says comes by the stream.
    sendMessage(event.target.message.value).catch(console.warn);
    event.target.reset();
  };

  return (
    <main>
      <ul>
        {events.map((event) => (
          <li key={event.id}>
            {event.type} {JSON.stringify(event.data)}
          </li>
        ))}
      </ul>
      {isLoading && <p role="status">Loading</p>}
      <form onSubmit={submit}>
        <input name="message" aria-label="Message" />
        <button>Send</button>
      </form>
    </main>
  );
}

const sessionId = new URLSearchParams(location.search).get("sessionId");
createRoot(document.getElementById("root")).render(<AgentChat sessionId={sessionId} />);
