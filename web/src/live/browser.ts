/** What the browser knows and keeps: the address, the theme, whether anybody looks. */

import { useSyncExternalStore } from "react";
import type { Route } from "../model/route.js";
import { routeOf } from "../model/route.js";
import { Store } from "./store.js";

export type Theme = "system" | "light" | "dark";

const THEMES: readonly Theme[] = ["system", "light", "dark"];

/** What is remembered; a browser that keeps nothing is no trouble. */
export const memory = {
  get(name: string): string | null {
    try {
      return localStorage.getItem(name);
    } catch {
      return null;
    }
  },
  set(name: string, value: string): void {
    try {
      localStorage.setItem(name, value);
    } catch {
      // it holds for this visit
    }
  },
};

/** What was written and not sent, for as long as the tab is open. */
export const drafts = {
  get(place: string): string {
    try {
      return sessionStorage.getItem(`draft ${place}`) ?? "";
    } catch {
      return "";
    }
  },
  set(place: string, text: string): void {
    try {
      if (text === "") sessionStorage.removeItem(`draft ${place}`);
      else sessionStorage.setItem(`draft ${place}`, text.slice(0, 100_000));
    } catch {
      // it holds until the page is left
    }
  },
  clear(): void {
    try {
      sessionStorage.clear(); // it holds nothing else
    } catch {
      // nothing is kept
    }
  },
};

export const theme = new Store<{ theme: Theme }>({
  theme: THEMES.find((each) => each === memory.get("theme")) ?? "system",
});

export function showTheme(): void {
  const { theme: chosen } = theme.get();
  if (chosen === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = chosen;
}

export function nextTheme(): void {
  const { theme: chosen } = theme.get();
  const next = THEMES[(THEMES.indexOf(chosen) + 1) % THEMES.length] ?? "system";
  memory.set("theme", next);
  theme.set({ theme: next });
  showTheme();
}

let shownHash: string | undefined;
let shownRoute: Route = { name: "home" };

export function useRoute(): Route {
  return useSyncExternalStore(
    (tell) => {
      addEventListener("hashchange", tell);
      return () => removeEventListener("hashchange", tell);
    },
    () => {
      if (location.hash !== shownHash) {
        shownHash = location.hash;
        shownRoute = routeOf(location.hash);
      }
      return shownRoute;
    },
  );
}

export function useHidden(): boolean {
  return useSyncExternalStore(
    (tell) => {
      document.addEventListener("visibilitychange", tell);
      return () => document.removeEventListener("visibilitychange", tell);
    },
    () => document.hidden,
  );
}

/** Where the focus would bring up a keyboard on the screen, it waits for a tap. */
export function hasPointer(): boolean {
  return matchMedia("(hover: hover)").matches;
}

export function download(name: string, parts: string[]): void {
  const url = URL.createObjectURL(new Blob(parts, { type: "application/x-ndjson" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
