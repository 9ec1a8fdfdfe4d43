/**
 * The page: which session is shown, over which link, and what the parts tell each other.
 *
 * What is shown is always the fold of the session's events; nothing that is sent is drawn before the log has it. The
 * address carries the session. A hidden page holds no connection, because browsers allow only six to a server: the log
 * gives back what was missed.
 */

import { createSession } from "./api.js";
import { Composer } from "./composer.js";
import { ConversationView } from "./conversation.js";
import { byId, element } from "./dom.js";
import { emptyConversation, fold } from "./fold.js";
import { SessionList } from "./sessions.js";
import { Socket } from "./socket.js";
import { Stream } from "./stream.js";

const TRANSPORTS = { stream: Stream, socket: Socket };
const STATES = {
  idle: "Ready",
  connecting: "Connecting…",
  live: "Live",
  reconnecting: "Reconnecting…",
  closed: "Closed",
};
const SUGGESTIONS = ["thinking tools markdown", "slow long", "Hello!", "fail"];
const NAME_LENGTH = 60;

let sessionId = null;
let conversation = emptyConversation();
let link = null;
let isSending = false; // a query is on its way, and the log does not have it yet
let isAwaited = false; // the user knows of a turn whose ending was not shown yet
let shownTurn = null;
let frame = 0;

const view = new ConversationView();
const composer = new Composer({ send, stop });
const sessions = new SessionList({
  deleted: (id) => id === sessionId && open(null),
  changed: showTitle,
  failed: (problem) => composer.tell(problem.message),
});

// ── the session ──────────────────────────────────────────────────────────────────────────────────────────────────

function open(id) {
  disconnect();
  sessionId = id;
  if (location.hash.slice(1) !== (id ?? "")) location.hash = id ?? "";
  conversation = emptyConversation();
  isSending = false;
  isAwaited = false;
  shownTurn = null;
  view.clear();
  composer.tell("");
  sessions.select(id);
  toggleSidebar(false);
  connect();
  showTitle();
  showProgress();
}

function connect() {
  if (sessionId === null || conversation.isOver || document.hidden) return;
  showState("connecting");
  link = new TRANSPORTS[transport()](sessionId, {
    after: () => conversation.lastId,
    event: take,
    state: showState,
    refused: giveBack,
    gone: (problem) => {
      showState("closed");
      composer.tell(problem.message);
      composer.state = "over";
    },
    restart: () => {
      conversation = emptyConversation();
      view.clear();
    },
  });
}

function disconnect() {
  link?.close();
  link = null;
  showState("idle");
}

function take(event) {
  view.draw(fold(conversation, event));
  if (event.type === "agent_run_start") isSending = false;
  if (conversation.isOver) {
    disconnect();
    showState("closed");
    sessions.refresh();
  }
  frame ||= requestAnimationFrame(showProgress);
}

// ── what the user does ───────────────────────────────────────────────────────────────────────────────────────────

async function send(text) {
  expectTurn();
  try {
    if (sessionId === null) {
      const created = await createSession(nameFrom(text));
      open(created.sessionId);
      expectTurn();
      sessions.refresh();
    }
    await link.query(text);
  } catch (problem) {
    giveBack(text, problem);
  }
}

function expectTurn() {
  isSending = true;
  isAwaited = true;
  showProgress();
  view.showEnd();
}

function suggest(text) {
  send(text);
  focusUnlessTouched();
}

async function stop() {
  try {
    await link?.abort(conversation.runningTurn);
  } catch (problem) {
    composer.tell(problem.message);
  }
}

function giveBack(text, problem) {
  isSending = false;
  isAwaited = false;
  composer.giveBack(text);
  composer.tell(problem.message);
  showProgress();
}

function nameFrom(text) {
  const words = text.replace(/[\p{C}\s]+/gu, " ").trim();
  const letters = [...words];
  return letters.length > NAME_LENGTH ? `${letters.slice(0, NAME_LENGTH).join("").trim()}…` : words;
}

// ── what the page shows ──────────────────────────────────────────────────────────────────────────────────────────

function showState(state) {
  const shown = byId("connection");
  if (shown.dataset.state === state) return;
  shown.dataset.state = state;
  shown.textContent = STATES[state];
}

function showProgress() {
  frame = 0;
  const { runningTurn, isOver } = conversation;
  const isRunning = runningTurn !== null;
  byId("working").hidden = !isRunning;
  byId("welcome").hidden = sessionId !== null;
  composer.state = isOver ? "over" : isRunning ? "working" : isSending ? "sending" : "ready";
  if (isRunning) {
    isAwaited = true;
  } else if (isAwaited && !isSending) {
    isAwaited = false;
    announceEnding();
  }
  if (runningTurn !== shownTurn) {
    shownTurn = runningTurn;
    sessions.refresh();
  }
}

function showTitle() {
  const title = sessionId === null ? "New chat" : (sessions.nameOf(sessionId) ?? "Session");
  byId("title").textContent = title;
  document.title = sessionId === null ? "Tarko chat" : `${title} · Tarko chat`;
}

/** Say the ending to those who do not see it. */
function announceEnding() {
  const said = conversation.items.findLast(({ kind }) => kind === "message" || kind === "error");
  byId("announcer").textContent = said ? (said.error ?? said.text) : "";
}

function toggleSidebar(isOpen) {
  document.body.toggleAttribute("data-sidebar", isOpen);
  byId("menu").setAttribute("aria-expanded", String(isOpen));
}

// ── the page itself ──────────────────────────────────────────────────────────────────────────────────────────────

function transport() {
  return document.querySelector("#transport input:checked").value;
}

function rememberTransport() {
  localStorage.setItem("transport", transport());
  if (link) {
    disconnect();
    connect();
  }
}

/** Where the focus would bring up a keyboard on the screen, it waits for a tap. */
function focusUnlessTouched() {
  if (matchMedia("(hover: hover)").matches) composer.focus();
}

function openFromAddress() {
  const id = location.hash.slice(1) || null;
  if (id !== sessionId) open(id);
}

function reconnect() {
  disconnect();
  connect();
}

const remembered = localStorage.getItem("transport") === "socket" ? "socket" : "stream";
document.querySelector(`#transport input[value=${remembered}]`).checked = true;
byId("transport").addEventListener("change", rememberTransport);
byId("new").addEventListener("click", () => {
  open(null);
  focusUnlessTouched();
});
byId("menu").addEventListener("click", () => toggleSidebar(!document.body.hasAttribute("data-sidebar")));
byId("veil").addEventListener("click", () => toggleSidebar(false));
byId("suggestions").append(
  ...SUGGESTIONS.map((text) =>
    element("li", {}, element("button", { type: "button", class: "quiet", onclick: () => suggest(text) }, text)),
  ),
);
addEventListener("keydown", (event) => event.key === "Escape" && toggleSidebar(false));
addEventListener("hashchange", openFromAddress);
addEventListener("online", () => link && reconnect());
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    disconnect();
  } else {
    sessions.refresh();
    connect();
  }
});

open(location.hash.slice(1) || null);
sessions.refresh();
focusUnlessTouched();
