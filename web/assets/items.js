/** How each kind of item looks. A view is `{node, update(item)}`; a node is made once and then kept. */

import { element } from "./dom.js";
import { Prose } from "./prose.js";

export function viewOf(item) {
  const view = VIEWS[item.kind]();
  view.update(item);
  return view;
}

const VIEWS = {
  user: () => {
    const node = element("article", { class: "user", "aria-label": "You" });
    return {
      node,
      update: ({ content }) => node.replaceChildren(...parts(content)),
    };
  },

  message: () => {
    const prose = new Prose();
    const node = element("article", { class: "message", "aria-label": "Assistant" }, prose.node);
    return {
      node,
      update: ({ text, isOpen }) => {
        prose.update(text);
        node.hidden = text === "";
        node.toggleAttribute("data-open", isOpen);
        node.setAttribute("aria-busy", String(isOpen));
      },
    };
  },

  thinking: () => {
    const title = element("span");
    const text = element("p", { class: "plain" });
    const node = element("details", { class: "thinking" }, element("summary", {}, title), text);
    return {
      node,
      update: (item) => {
        title.textContent = item.isOpen ? "Thinking…" : `Thought for ${duration(item.durationMs)}`;
        text.textContent = item.text;
        node.toggleAttribute("data-open", item.isOpen);
      },
    };
  },

  tool: () => {
    const name = element("code");
    const state = element("span", { class: "state" });
    const body = element("div");
    const node = element("details", { class: "tool" }, element("summary", {}, name, state), body);
    return {
      node,
      update: (item) => {
        name.textContent = item.name;
        state.textContent = toolState(item);
        node.dataset.state = item.isOpen ? "running" : item.error === null ? "done" : "failed";
        body.replaceChildren(
          ...labelled("Arguments", item.arguments),
          ...(item.content === "" || item.content === item.error ? [] : labelled("Result", item.content)),
          ...(item.error === null ? [] : labelled("Error", item.error)),
        );
      },
    };
  },

  error: () => {
    const node = element("article", { class: "error", "aria-label": "Error" });
    return {
      node,
      update: ({ error, code, recoverable }) =>
        node.replaceChildren(
          element("p", { class: "plain" }, String(error)),
          element(
            "p",
            { class: "small" },
            ...(code ? [element("code", {}, String(code))] : []),
            recoverable ? " Trying again may help." : "",
          ),
        ),
    };
  },

  ending: () => {
    const node = element("div", { class: "ending" });
    return {
      node,
      update: ({ status, elapsedMs, data }) => {
        node.dataset.status = status;
        node.replaceChildren(
          element("p", {}, `${ENDINGS[status] ?? status} after ${duration(elapsedMs)}`),
          ...(data === undefined ? [] : [folded("Result", data)]),
        );
      },
    };
  },

  over: () => still(element("p", { class: "over" }, "This session was deleted.")),

  other: () => {
    const node = element("div", { class: "other" });
    return { node, update: ({ type, data }) => node.replaceChildren(folded(type, data)) };
  },
};

const ENDINGS = { completed: "Completed", failed: "Failed", aborted: "Stopped", interrupted: "Interrupted" };

function still(node) {
  return { node, update: () => {} };
}

/** What the user said: text, or content parts. */
function parts(content) {
  if (typeof content === "string") return [element("p", { class: "plain" }, content)];
  if (!Array.isArray(content)) return [];
  return content.map((part) =>
    part?.type === "text"
      ? element("p", { class: "plain" }, String(part.text))
      : element("p", { class: "attachment" }, attachment(part)),
  );
}

function attachment(part) {
  const url = part?.image_url?.url ?? "";
  const [, mediaType] = /^data:([\w/+.-]{1,100})/.exec(url) ?? [];
  return mediaType ? `${mediaType}, ${Math.ceil((url.length * 3) / 4 / 1024)} KB` : (part?.type ?? "attachment");
}

function toolState({ isOpen, error, elapsedMs }) {
  if (isOpen) return "running";
  return error === null ? `done in ${duration(elapsedMs)}` : "failed";
}

function folded(title, data) {
  return element(
    "details",
    {},
    element("summary", {}, element("span", {}, title)),
    element("pre", { tabindex: "0" }, element("code", {}, pretty(data))),
  );
}

function labelled(label, data) {
  return [
    element("p", { class: "small" }, label),
    element("pre", { tabindex: "0" }, element("code", {}, pretty(data))),
  ];
}

function pretty(data) {
  return typeof data === "string" ? data : JSON.stringify(data, null, 2);
}

function duration(milliseconds) {
  if (!(milliseconds >= 0)) return "a while";
  if (milliseconds < 1000) return `${milliseconds} ms`;
  const seconds = milliseconds / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}
