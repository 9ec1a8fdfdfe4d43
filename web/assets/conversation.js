/**
 * Shows a conversation. Changed items are drawn once a frame, however many events came; the end stays in view as long
 * as the reader has not scrolled away from it.
 */

import { byId } from "./dom.js";
import { viewOf } from "./items.js";

const NEAR = 80;

export class ConversationView {
  #scroller = byId("scroller");
  #log = byId("log");
  #latest = byId("latest");
  #views = new Map();
  #changed = new Set();
  #frame = 0;
  #follows = true;

  constructor() {
    this.#scroller.addEventListener("scroll", () => this.#look(), { passive: true });
    this.#latest.addEventListener("click", () => this.showEnd());
    new ResizeObserver(() => this.#settle()).observe(this.#scroller);
  }

  clear() {
    this.#views.clear();
    this.#changed.clear();
    this.#log.replaceChildren();
    this.showEnd();
  }

  /** Draw these items at the next frame. */
  draw(items) {
    for (const item of items) this.#changed.add(item);
    this.#frame ||= requestAnimationFrame(() => this.#draw());
  }

  showEnd() {
    this.#follows = true;
    this.#settle();
  }

  #draw() {
    this.#frame = 0;
    const made = document.createDocumentFragment();
    for (const item of this.#changed) {
      const view = this.#views.get(item.key);
      if (view) {
        view.update(item);
      } else {
        const fresh = viewOf(item);
        this.#views.set(item.key, fresh);
        made.append(fresh.node);
      }
    }
    this.#changed.clear();
    this.#log.append(made);
    this.#settle();
  }

  #look() {
    const { scrollHeight, scrollTop, clientHeight } = this.#scroller;
    this.#follows = scrollHeight - scrollTop - clientHeight < NEAR;
    this.#latest.hidden = this.#follows;
  }

  #settle() {
    if (this.#follows) this.#scroller.scrollTop = this.#scroller.scrollHeight;
    this.#look();
  }
}
