/** The field to write in, with its two buttons. Enter sends, except with Shift or within an input method. */

import { byId } from "./dom.js";

export class Composer {
  #field = byId("message");
  #send = byId("send");
  #stop = byId("stop");
  #problem = byId("problem");
  #state = "ready";

  /** `on` has `send(text)` and `stop()`. */
  constructor(on) {
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      const text = this.#field.value.trim();
      if (!text || this.#state !== "ready") return;
      this.#field.value = "";
      this.#grow();
      this.tell("");
      on.send(text);
    });
    this.#field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      byId("composer").requestSubmit();
    });
    this.#field.addEventListener("input", () => this.#grow());
    this.#stop.addEventListener("click", () => on.stop());
  }

  /** "ready", "working" (a turn runs: it can be stopped), "sending" or "over" (nothing more can be said). */
  set state(state) {
    if (state === this.#state) return;
    const hadFocus = document.activeElement === this.#stop;
    this.#state = state;
    this.#stop.hidden = state !== "working";
    this.#send.hidden = state === "working";
    this.#send.disabled = state !== "ready";
    this.#field.disabled = state === "over";
    if (hadFocus && this.#stop.hidden) this.focus();
  }

  focus() {
    this.#field.focus({ preventScroll: true });
  }

  tell(problem) {
    this.#problem.textContent = problem;
  }

  /** Give back what could not be sent, unless something new is being written. */
  giveBack(text) {
    if (this.#field.value.trim() === "") this.#field.value = text;
    this.#grow();
  }

  #grow() {
    this.#field.style.height = "auto";
    this.#field.style.height = `${this.#field.scrollHeight}px`;
  }
}
