/** The list of sessions: newest first, a page at a time. It is read again whenever something may have changed it. */

import { deleteSession, listSessions } from "./api.js";
import { byId, element } from "./dom.js";

const WHEN = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

export class SessionList {
  #list = byId("sessions");
  #older = byId("older");
  #on;
  #current = null;
  #sessions = [];
  #pages = 1;
  #isReading = false;
  #isStale = false;

  /** `on` has `deleted(sessionId)`, `changed()` and `failed(problem)`. */
  constructor(on) {
    this.#on = on;
    this.#older.addEventListener("click", () => {
      this.#pages += 1;
      this.refresh();
    });
  }

  nameOf(sessionId) {
    const session = this.#sessions.find(({ id }) => id === sessionId);
    return session && titleOf(session);
  }

  select(sessionId) {
    this.#current = sessionId;
    this.#draw();
  }

  /** Read the list; a call that comes meanwhile makes it be read once more. */
  async refresh() {
    this.#isStale = true;
    if (this.#isReading) return;
    this.#isReading = true;
    try {
      while (this.#isStale) {
        this.#isStale = false;
        await this.#read();
      }
    } catch (problem) {
      this.#on.failed(problem);
    } finally {
      this.#isReading = false;
    }
  }

  async #read() {
    const sessions = [];
    let after;
    for (let page = 0; page < this.#pages && (page === 0 || after); page += 1) {
      const answer = await listSessions(after);
      sessions.push(...answer.sessions);
      after = answer.nextAfter;
    }
    this.#sessions = sessions;
    this.#older.hidden = !after;
    this.#draw();
    this.#on.changed();
  }

  #draw() {
    const focused = this.#list.contains(document.activeElement) ? document.activeElement.id : null;
    this.#list.replaceChildren(...this.#sessions.map((session) => this.#row(session)));
    if (focused) byId(focused)?.focus();
  }

  #row(session) {
    const title = titleOf(session);
    const isCurrent = session.id === this.#current;
    return element(
      "li",
      {},
      element(
        "a",
        { id: `open ${session.id}`, href: `#${session.id}`, "aria-current": isCurrent ? "page" : undefined },
        element("span", { class: "name" }, title),
        element(
          "span",
          { class: "small" },
          session.status.isProcessing ? "working" : WHEN.format(new Date(session.createdAt)),
        ),
      ),
      element(
        "button",
        {
          id: `delete ${session.id}`,
          type: "button",
          class: "remove",
          "aria-label": `Delete ${title}`,
          onclick: () => this.#delete(session.id, title),
        },
        "×",
      ),
    );
  }

  async #delete(sessionId, title) {
    if (!(await isConfirmed(title))) return;
    try {
      await deleteSession(sessionId);
    } catch (problem) {
      if (problem.status !== 404) {
        this.#on.failed(problem);
        return;
      }
    }
    this.#on.deleted(sessionId);
    await this.refresh();
  }
}

function titleOf(session) {
  return session.name || "Untitled";
}

function isConfirmed(title) {
  const dialog = byId("confirm");
  byId("confirm-name").textContent = title;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "delete"), { once: true });
  });
}
