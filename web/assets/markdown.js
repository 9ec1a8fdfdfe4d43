/**
 * A small part of Markdown, as data: code, headings, lists, tables, quotes, paragraphs; in lines code, strong,
 * emphasis, links. What is not understood stays text. Pure; every block carries its `source`, so a view can tell which
 * blocks of a growing text have changed.
 */

// The patterns are linear, or bounded where they look ahead: a hostile text must not hold the page up.
const LONGEST_LINE = 5000;
const FENCE = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^(#{1,6})\s(.*)$/;
const RULE = /^ {0,3}(?:-{3,}|\*{3,}|_{3,})$/;
const BULLET = /^( *)[-*+]\s(.*)$/;
const NUMBER = /^( *)\d{1,9}[.)]\s(.*)$/;
const QUOTE = /^ {0,3}>(.*)$/;
const TABLE_RULE = /^[\s|:-]*-[\s|:-]*$/;
const INLINE = new RegExp(
  [
    "(?<ticks>`{1,3})(?<code>[^`]{1,500})\\k<ticks>",
    "\\*\\*(?<strong>[^*]{1,500})\\*\\*",
    "\\*(?<emphasis>[^*\\s][^*]{0,500})\\*",
    "\\[(?<label>[^\\]]{1,500})\\]\\((?<target>[^()\\s]{1,2000})\\)",
    "(?<bare>https?://[^\\s<>\"'`()\\]]{1,2000})",
  ].join("|"),
  "g",
);

export function parseBlocks(text) {
  const lines = text.split("\n");
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (lines[at].trim() === "") {
      at += 1;
      continue;
    }
    const [block, next] = takeBlock(lines, at);
    blocks.push({ ...block, source: lines.slice(at, next).join("\n") });
    at = next;
  }
  return blocks;
}

/** The spans of a line of text: `{kind: "text" | "code" | "strong" | "emphasis" | "link", text, href?}`. */
export function parseSpans(text) {
  if (text.length > LONGEST_LINE) return [{ kind: "text", text }];
  const spans = [];
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    const span = spanOf(match.groups);
    if (!span) continue;
    if (match.index > at) spans.push({ kind: "text", text: text.slice(at, match.index) });
    spans.push(span);
    at = match.index + (span.length ?? match[0].length);
  }
  if (at < text.length) spans.push({ kind: "text", text: text.slice(at) });
  return spans;
}

function spanOf({ code, strong, emphasis, label, target, bare }) {
  if (code !== undefined) return { kind: "code", text: code };
  if (strong !== undefined) return { kind: "strong", text: strong };
  if (emphasis !== undefined) return { kind: "emphasis", text: emphasis };
  if (bare !== undefined) return bareLink(bare);
  // Nothing but the web: a link with another scheme stays the text that it is.
  return /^https?:\/\//i.test(target) ? { kind: "link", text: label, href: target } : null;
}

/** What ends a sentence does not belong to the address before it. */
function bareLink(bare) {
  const href = bare.replace(/[.,;:!?]{1,5}$/, "");
  return { kind: "link", text: href, href, length: href.length };
}

function takeBlock(lines, at) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return takeFence(lines, at, fence);
  const heading = HEADING.exec(line);
  if (heading) return [{ kind: "heading", level: heading[1].length, text: heading[2].trim() }, at + 1];
  if (RULE.test(line)) return [{ kind: "rule" }, at + 1];
  if (line.includes("|") && TABLE_RULE.test(lines[at + 1] ?? "")) return takeTable(lines, at);
  for (const [pattern, kind] of [[BULLET, "bullets"], [NUMBER, "numbers"]]) {
    if (pattern.test(line)) return takeList(lines, at, pattern, kind);
  }
  if (QUOTE.test(line)) return takeQuote(lines, at);
  return takeParagraph(lines, at);
}

function takeFence(lines, at, [, mark, info]) {
  let end = at + 1;
  while (end < lines.length && !closes(lines[end].trim(), mark)) end += 1;
  const text = lines.slice(at + 1, end).join("\n");
  const language = info.trim().split(/\s/, 1)[0].slice(0, 30);
  return [{ kind: "code", language, text }, Math.min(end + 1, lines.length)];
}

function closes(line, mark) {
  return line.startsWith(mark) && /^[`~]+$/.test(line);
}

function takeTable(lines, at) {
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|")) end += 1;
  const rows = lines.slice(at + 2, end).map(cells);
  return [{ kind: "table", head: cells(lines[at]), rows }, end];
}

function cells(line) {
  return line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
}

function takeList(lines, at, pattern, kind) {
  const items = [];
  let end = at;
  for (; end < lines.length; end += 1) {
    const found = pattern.exec(lines[end]);
    if (found) items.push({ depth: Math.min(4, Math.floor(found[1].length / 2)), text: found[2].trim() });
    else if (/^\s/.test(lines[end]) && lines[end].trim() !== "") items.at(-1).text += `\n${lines[end].trim()}`;
    else break;
  }
  return [{ kind, items }, end];
}

function takeQuote(lines, at) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  return [{ kind: "quote", text: lines.slice(at, end).map((line) => QUOTE.exec(line)[1].trim()).join("\n") }, end];
}

function takeParagraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() !== "" && !beginsBlock(lines[end])) end += 1;
  return [{ kind: "paragraph", text: lines.slice(at, end).join("\n") }, end];
}

function beginsBlock(line) {
  return [FENCE, HEADING, RULE, BULLET, NUMBER, QUOTE].some((pattern) => pattern.test(line));
}
