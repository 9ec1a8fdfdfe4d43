/** Text that somebody else wrote: markdown, plain text, JSON, pictures. However long, only so much is put on the page. */

import { memo, useLayoutEffect, useMemo, useRef, useState } from "react";
import { pretty, size, visible } from "../model/text.js";
import { blocksOf, sanitised } from "./markdown.js";

/** Characters: what is longer is not worth a browser's time as markdown. */
const MOST_MARKDOWN = 200_000;
const MOST_SHOWN = 20_000;

export const Markdown = memo(function Markdown({ text }: { text: string }) {
  const blocks = useMemo(() => (text.length > MOST_MARKDOWN ? undefined : blocksOf(visible(text))), [text]);
  if (blocks === undefined) return <Plain text={text} />;
  return (
    <div className="prose" onClick={copyCode}>
      {blocks.map((html, at) => (
        <Html key={at} html={html} />
      ))}
    </div>
  );
});

const Html = memo(function Html({ html }: { html: string }) {
  const node = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => node.current?.replaceChildren(sanitised(html)), [html]);
  return <div ref={node} dir="auto" />;
});

function copyCode(event: React.MouseEvent): void {
  const button = (event.target as Element).closest("button.copy");
  if (!button) return;
  void copy(button.closest(".code")?.querySelector("code")?.textContent ?? "").then(() => {
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
}

/** Puts text on the clipboard, also where the page came over plain HTTP and has no clipboard of its own. */
export async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}

/** Text as it is. */
export function Plain({ text, isCode = false }: { text: string; isCode?: boolean }) {
  const [shown, setShown] = useState(MOST_SHOWN);
  const part = useMemo(() => visible(text.slice(0, shown)), [text, shown]);
  return (
    <>
      {isCode ? (
        <pre tabIndex={0} role="region" aria-label="Text">
          <code dir="auto">{part}</code>
        </pre>
      ) : (
        <p className="plain" dir="auto">
          {part}
        </p>
      )}
      {text.length > shown && (
        <p className="cut">
          {size(text.length - shown)} more.{" "}
          <button type="button" className="quiet" onClick={() => setShown(shown * 4)}>
            Show more
          </button>
          <button type="button" className="quiet" onClick={() => void copy(text)}>
            Copy all
          </button>
        </p>
      )}
    </>
  );
}

/** Any JSON, to be read. */
export function Data({ value }: { value: unknown }) {
  const text = useMemo(() => pretty(value), [value]);
  return <Plain text={text} isCode />;
}

const PICTURE = /^data:image\/(?:png|jpe?g|gif|webp|avif);base64,/i;

/** Pictures among content parts, in the spellings of Tarko, of MCP and of agents here. */
export function picturesOf(content: unknown): string[] {
  if (!Array.isArray(content)) return [];
  const found: string[] = [];
  for (const part of content as unknown[]) {
    const { image_url, type, data, mimeType } = (part ?? {}) as Record<string, unknown>;
    const url = (image_url as { url?: unknown } | undefined)?.url;
    if (typeof url === "string" && PICTURE.test(url)) found.push(url);
    else if (type === "image" && typeof data === "string") found.push(`data:${String(mimeType)};base64,${data}`);
  }
  return found.filter((url) => PICTURE.test(url));
}

export function Pictures({ urls }: { urls: readonly string[] }) {
  if (urls.length === 0) return null;
  return (
    <div className="pictures">
      {urls.map((url, at) => (
        <Picture key={at} url={url} name={`Picture ${at + 1} of ${urls.length}`} />
      ))}
    </div>
  );
}

function Picture({ url, name }: { url: string; name: string }) {
  const [isBroken, setBroken] = useState(false);
  if (!isBroken) return <img src={url} alt={name} onError={() => setBroken(true)} />;
  return <p className="cut">A picture of {size(url.length * 0.75)} that can't be shown.</p>;
}
