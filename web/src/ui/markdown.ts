/**
 * Markdown as html that does nothing but show: no html of the author's own, links that open elsewhere, pictures only
 * from `data:`. Two walls: markdown-it makes no other html, and DOMPurify lets nothing else through.
 */

import DOMPurify from "dompurify";
import MarkdownIt from "markdown-it";

const markdown = new MarkdownIt({ html: false, linkify: true, breaks: true });
const LINKS = /^(?:https?:|mailto:)/i;
const PICTURES = /^data:image\/(?:png|jpe?g|gif|webp|avif);base64,/i;

markdown.validateLink = (url) => LINKS.test(url) || PICTURES.test(url);
markdown.linkify.set({ fuzzyLink: false, fuzzyEmail: false });

const { image, table_open, fence } = markdown.renderer.rules;

/** A picture of another host would tell that host who reads this: it becomes a link. */
markdown.renderer.rules["image"] = (tokens, at, options, env, self) => {
  const token = tokens[at];
  const url = String(token?.attrGet("src") ?? "");
  if (PICTURES.test(url) && image) return image(tokens, at, options, env, self);
  const { escapeHtml } = markdown.utils;
  return `<a href="${escapeHtml(url)}">${escapeHtml(token?.content || url)}</a>`;
};
markdown.renderer.rules["table_open"] = (tokens, at, options, env, self) =>
  `<div class="wide" tabindex="0" role="region" aria-label="Table">${
    table_open ? table_open(tokens, at, options, env, self) : self.renderToken(tokens, at, options)
  }`;
markdown.renderer.rules["table_close"] = () => "</table></div>";
const codeRule: typeof fence = (tokens, at) => {
  const token = tokens[at];
  const language = (token?.info ?? "").trim().split(/\s+/)[0] ?? "";
  const { escapeHtml } = markdown.utils;
  return (
    `<div class="code"><p class="code-bar"><span>${escapeHtml(language || "text")}</span>` +
    `<button type="button" class="copy">Copy</button></p>` +
    `<pre tabindex="0"><code>${escapeHtml(token?.content ?? "")}</code></pre></div>`
  );
};
markdown.renderer.rules["fence"] = codeRule;
markdown.renderer.rules["code_block"] = codeRule;

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.nodeName === "A") {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer nofollow");
  }
  if (node.nodeName === "IMG") node.setAttribute("loading", "lazy");
});

const ALLOWED = {
  ALLOWED_TAGS: [
    ...["p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "strong", "em", "s"],
    ...["code", "pre", "a", "img", "table", "thead", "tbody", "tr", "th", "td", "div", "span", "button"],
  ],
  ALLOWED_ATTR: ["href", "src", "alt", "title", "start", "class", "tabindex", "role", "aria-label", "type", "target"],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:|data:image\/(?:png|jpe?g|gif|webp|avif);base64,)/i,
  RETURN_DOM_FRAGMENT: true as const,
};

/** Html as nodes that are safe to show. */
export function sanitised(html: string): DocumentFragment {
  return DOMPurify.sanitize(html, ALLOWED);
}

/** The text's blocks as html, one each, so that only the last one changes while the text grows. */
export function blocksOf(text: string): string[] {
  const env = {};
  const tokens = markdown.parse(text, env);
  const blocks: string[] = [];
  let from = 0;
  let depth = 0;
  tokens.forEach((token, at) => {
    depth += token.nesting;
    if (depth > 0) return;
    blocks.push(markdown.renderer.render(tokens.slice(from, at + 1), markdown.options, env));
    from = at + 1;
  });
  return blocks;
}
