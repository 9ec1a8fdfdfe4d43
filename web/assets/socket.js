/**
 * A session followed over `/ws`: what `Stream` is, with queries and aborts on the same connection.
 *
 * A socket does not notice when its other end has vanished, so after a silence it is asked for a `pong`. Answers that
 * are not in the log have ids of their own kind and never reach the conversation.
 */

import { Recovery } from "./recovery.js";

const SILENCE = 20_000;
const PATIENCE = 10_000;

export class Socket {
  #sessionId;
  #on;
  #recovery;
  #socket = null;
  #isJoined = false;
  #unsent = [];
  #queries = new Map();
  #number = 0;
  #watch;

  constructor(sessionId, on) {
    this.#sessionId = sessionId;
    this.#on = on;
    this.#recovery = new Recovery(sessionId, on, () => this.#open());
    this.#open();
  }

  close() {
    this.#recovery.close();
    clearTimeout(this.#watch);
    this.#socket?.close();
  }

  async query(text) {
    const requestId = `query ${++this.#number}`;
    this.#queries.set(requestId, text);
    this.#say({ type: "send_query", query: text, requestId });
  }

  async abort(turnId) {
    this.#say({ type: "abort_query", turnId });
  }

  #say(command) {
    const text = JSON.stringify({ ...command, sessionId: this.#sessionId });
    if (this.#isJoined) this.#socket.send(text);
    else this.#unsent.push(text);
  }

  #open() {
    const socket = new WebSocket(`${location.protocol === "https:" ? "wss:" : "ws:"}//${location.host}/ws`);
    const after = this.#on.after();
    this.#socket = socket;
    socket.onopen = () =>
      socket.send(JSON.stringify({ type: "join_session", sessionId: this.#sessionId, ...(after && { after }) }));
    socket.onmessage = (message) => {
      if (socket === this.#socket && !this.#recovery.isClosed) this.#take(JSON.parse(message.data));
    };
    socket.onclose = () => this.#lose(socket);
  }

  #take(event) {
    this.#keepWatch(this.#socket);
    if (isAnswer(event)) {
      this.#takeAnswer(event);
      return;
    }
    if (event.type === "user_message") this.#forgetQuery(event.data.content);
    this.#on.event(event);
  }

  #takeAnswer({ type, data }) {
    if (type === "session_joined") {
      this.#isJoined = true;
      this.#recovery.succeeded();
      for (const text of this.#unsent.splice(0)) this.#socket.send(text);
    } else if (type === "error" && data.details?.requestType === "join_session") {
      this.#lose(this.#socket);
    } else if (type === "error" && data.details?.requestType === "send_query") {
      const text = this.#queries.get(data.details.requestId) ?? "";
      this.#queries.delete(data.details.requestId);
      this.#on.refused(text, { code: data.code, message: data.error });
    }
  }

  /** A query has begun when the log has it: there is no other answer. */
  #forgetQuery(content) {
    for (const [requestId, text] of this.#queries) if (text === content) this.#queries.delete(requestId);
  }

  #keepWatch(socket) {
    clearTimeout(this.#watch);
    this.#watch = setTimeout(() => {
      socket.send(JSON.stringify({ type: "ping" }));
      this.#watch = setTimeout(() => this.#lose(socket), PATIENCE);
    }, SILENCE);
  }

  #lose(socket) {
    if (socket !== this.#socket || this.#recovery.isClosed) return;
    clearTimeout(this.#watch);
    this.#socket = null;
    this.#isJoined = false;
    this.#unsent = [];
    socket.close();
    for (const text of this.#queries.values()) {
      this.#on.refused(text, { message: "The connection broke while this was sent; look whether it has begun." });
    }
    this.#queries.clear();
    this.#recovery.begin();
  }
}

function isAnswer(event) {
  return event.id.startsWith("ctl_") || event.id.includes("~");
}
