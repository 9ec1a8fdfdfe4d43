/** The field to write in. Enter sends, except with Shift or within an input method. While a turn runs, it queues. */

import { useEffect, useLayoutEffect, useRef, useState } from "react";
import { drafts } from "../live/browser.js";
import type { Query } from "../model/client.js";
import type { Transport } from "../live/session.js";
import { Icon } from "./Icons.js";

const MOST_BYTES = 14_000_000;

interface Props {
  /** What is written here is kept under this name until it is sent: a reload, or a login, loses no words. */
  place: string;
  isRunning: boolean;
  isOver: boolean;
  problem: string;
  text: string;
  isFocused: boolean;
  transport: Transport;
  onTransport: (transport: Transport) => void;
  /** Rejects when it was not taken: the text is given back. */
  onSend: (text: string, query: Query) => Promise<void>;
  onStop: () => void;
}

export function Composer(props: Props) {
  const { isRunning, isOver, onSend, onStop } = props;
  const field = useRef<HTMLTextAreaElement>(null);
  const file = useRef<HTMLInputElement>(null);
  const [text, setText] = useState(() => props.text || drafts.get(props.place));
  const [pictures, setPictures] = useState<string[]>([]);
  const [isSending, setSending] = useState(false);
  const [refused, setRefused] = useState("");
  const isEmpty = text.trim() === "" && pictures.length === 0;

  useEffect(() => {
    if (props.isFocused) field.current?.focus({ preventScroll: true });
  }, [props.isFocused]);
  useEffect(() => drafts.set(props.place, text), [props.place, text]);
  useLayoutEffect(() => {
    const node = field.current;
    if (!node) return;
    node.style.height = "auto";
    node.style.height = `${node.scrollHeight}px`;
  }, [text]);

  const send = async () => {
    if (isEmpty || isSending || isOver) return;
    const [words, shown] = [text.trim(), pictures];
    const images = shown.map((url) => ({ type: "image_url", image_url: { url } }));
    setText("");
    setPictures([]);
    setSending(true);
    setRefused("");
    try {
      await onSend(words, images.length === 0 ? words : [...(words ? [{ type: "text", text: words }] : []), ...images]);
    } catch {
      // Given back, unless something new is being written.
      setText((now) => now || words);
      setPictures((now) => (now.length > 0 ? now : shown));
    } finally {
      setSending(false);
    }
  };
  const attach = async (files: Iterable<File>) => {
    for (const each of files) {
      if (!/^image\/(png|jpeg|gif|webp)$/.test(each.type)) setRefused(`${each.name} is no picture that agents take.`);
      else if (each.size > MOST_BYTES) setRefused(`${each.name} is larger than 14 MB.`);
      else {
        const url = await dataUrl(each);
        setPictures((now) => [...now, url]);
      }
    }
  };

  return (
    <form
      id="composer"
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      <p id="problem" role="alert">
        {refused || props.problem}
      </p>
      {pictures.length > 0 && (
        <ul className="attachments" aria-label="Attached pictures">
          {pictures.map((url, at) => (
            <li key={at}>
              <img src={url} alt={`Attached picture ${at + 1}`} />
              <button
                type="button"
                className="bare"
                aria-label={`Remove picture ${at + 1}`}
                onClick={() => setPictures(pictures.filter((_, other) => other !== at))}
              >
                <Icon name="close" size={14} />
              </button>
            </li>
          ))}
        </ul>
      )}
      <div className="entry">
        <button type="button" className="bare" aria-label="Attach a picture" disabled={isOver} onClick={() => file.current?.click()}>
          <Icon name="clip" size={18} />
        </button>
        <input
          ref={file}
          type="file"
          accept="image/png,image/jpeg,image/gif,image/webp"
          multiple
          hidden
          onChange={(event) => {
            void attach([...(event.target.files ?? [])]);
            event.target.value = "";
          }}
        />
        <label htmlFor="message" className="hidden-text">
          Message
        </label>
        <textarea
          id="message"
          ref={field}
          rows={1}
          enterKeyHint="send"
          autoComplete="off"
          aria-describedby="keys"
          placeholder={isRunning ? "Write what comes next" : "Write a message"}
          disabled={isOver}
          value={text}
          onChange={(event) => setText(event.target.value)}
          onPaste={(event) => {
            if (event.clipboardData.files.length > 0) void attach([...event.clipboardData.files]);
          }}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
            event.preventDefault();
            void send();
          }}
        />
        {isRunning && (
          <button type="button" id="stop" className="stop" onClick={onStop}>
            <Icon name="stop" /> <span className="word">Stop</span>
          </button>
        )}
        {(!isRunning || !isEmpty) && (
          <button type="submit" id="send" className="primary" disabled={isOver || isSending || isEmpty}>
            <Icon name={isRunning ? "queue" : "send"} /> <span className="word">{isRunning ? "Queue" : "Send"}</span>
          </button>
        )}
      </div>
      <div className="footnotes">
        <fieldset id="transport">
          <legend>Live over</legend>
          {(["sse", "websocket"] as const).map((each) => (
            <label key={each}>
              <input
                type="radio"
                name="transport"
                value={each}
                checked={props.transport === each}
                onChange={() => props.onTransport(each)}
              />
              <span>{each === "sse" ? "Event stream" : "WebSocket"}</span>
            </label>
          ))}
        </fieldset>
        <p id="keys">Enter sends, Shift+Enter begins a new line</p>
      </div>
    </form>
  );
}

function dataUrl(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error ?? new Error("The file can't be read."));
    reader.readAsDataURL(file);
  });
}
