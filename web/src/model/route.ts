/** What the address says: which session, which view of it, which event. Pure. */

export const VIEWS = ["conversation", "timeline", "events", "replay"] as const;

export type View = (typeof VIEWS)[number];

export type Route =
  | { readonly name: "home" }
  | { readonly name: "server" }
  | { readonly name: "session"; readonly id: string; readonly view: View; readonly target: string | undefined };

/** Reads the part after `#`: `sess_…`, `sess_…/events`, `sess_…/events/evt_…`, `server`. */
export function routeOf(hash: string): Route {
  const [id = "", view = "conversation", target] = hash.replace(/^#/, "").split("/").map(decoded);
  if (id === "") return { name: "home" };
  if (id === "server") return { name: "server" };
  return { name: "session", id, view: VIEWS.find((each) => each === view) ?? "conversation", target };
}

export function hashOf(id: string, view: View = "conversation", target?: string): string {
  const parts = view === "conversation" ? [id] : [id, view, ...(target === undefined ? [] : [target])];
  return `#${parts.map(encodeURIComponent).join("/")}`;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
