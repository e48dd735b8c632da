// Elements, and updates in place that keep focus and typed text.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/// Creates an HTML element: `h("td", { class: "number" }, "3")`.
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

/// Creates an SVG element.
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

export const at = (id) => document.getElementById(id);

/// Updates the children of `parent` to equal `wanted`. Elements of the same tag stay, with their focus
/// and their listeners, so add listeners to an enclosing element.
export function morph(parent, wanted) {
  const fresh = wanted.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  fresh.forEach((child, index) => {
    const there = parent.childNodes[index];
    const next = child instanceof Node ? child : document.createTextNode(String(child));
    if (!there) parent.append(next);
    else if (there.nodeName !== next.nodeName) there.replaceWith(next);
    else if (next.nodeType === Node.TEXT_NODE) {
      if (there.data !== next.data) there.data = next.data;
    } else alike(there, next);
  });
  while (parent.childNodes.length > fresh.length) parent.lastChild.remove();
}

/// Updates the element `there` to equal `next`, of the same tag.
export function alike(there, next) {
  for (const { name } of [...there.attributes]) if (!next.hasAttribute(name)) there.removeAttribute(name);
  for (const { name, value } of next.attributes) {
    if (there.getAttribute(name) !== value) there.setAttribute(name, value);
  }
  morph(there, [...next.childNodes]);
}

/// Downloads `blob` as a file.
export function save(blob, name) {
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
