/** A text that may grow, shown as prose. Blocks that did not change keep their nodes, so a selection survives. */

import { element } from "./dom.js";
import { parseBlocks, parseSpans } from "./markdown.js";

const LONGEST_PROSE = 200_000; // beyond it parsing at every frame would be felt: plain text then

export class Prose {
  node = element("div", { class: "prose" });
  #shown = [];

  update(text) {
    const blocks = text.length > LONGEST_PROSE ? [{ kind: "plain", text, source: text }] : parseBlocks(text);
    let same = 0;
    while (same < blocks.length && blocks[same].source === this.#shown[same]?.source) same += 1;
    for (const { node } of this.#shown.splice(same)) node.remove();
    for (const block of blocks.slice(same)) {
      const node = BLOCKS[block.kind](block);
      this.#shown.push({ source: block.source, node });
      this.node.append(node);
    }
  }
}

const BLOCKS = {
  paragraph: ({ text }) => element("p", {}, ...spans(text)),
  plain: ({ text }) => element("p", { class: "plain" }, text),
  // The page has its own first and second level.
  heading: ({ level, text }) => element(`h${Math.min(6, level + 2)}`, {}, ...spans(text)),
  rule: () => element("hr"),
  quote: ({ text }) => element("blockquote", {}, ...spans(text)),
  bullets: ({ items }) => element("ul", {}, ...items.map(listItem)),
  numbers: ({ items }) => element("ol", {}, ...items.map(listItem)),
  code: ({ language, text }) =>
    element("pre", { tabindex: "0", "data-language": language || undefined }, element("code", {}, text)),
  table: ({ head, rows }) =>
    element(
      "div",
      { class: "wide", tabindex: "0", role: "region", "aria-label": "Table" },
      element(
        "table",
        {},
        element("thead", {}, element("tr", {}, ...head.map((cell) => element("th", {}, ...spans(cell))))),
        element("tbody", {}, ...rows.map((row) => tableRow(row, head.length))),
      ),
    ),
};

function listItem({ depth, text }) {
  return element("li", { "data-depth": depth ? String(depth) : undefined }, ...spans(text));
}

function tableRow(row, width) {
  return element("tr", {}, ...row.slice(0, width).map((cell) => element("td", {}, ...spans(cell))));
}

function spans(text) {
  return parseSpans(text).map(({ kind, text: words, href }) => {
    if (kind === "code") return element("code", {}, words);
    if (kind === "strong") return element("strong", {}, words);
    if (kind === "emphasis") return element("em", {}, words);
    if (kind === "link") return element("a", { href, target: "_blank", rel: "noopener noreferrer" }, words);
    return words;
  });
}
