/** Elements made of text and other elements. Nothing on this page turns text into HTML. */

/** An attribute that is `false` or `undefined` is left out; a function named `on…` listens. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name.slice(2), value);
    else if (value !== false && value !== undefined) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

export const byId = (id) => document.getElementById(id);
