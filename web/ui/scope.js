// Choice between all replicas of a template and the shown one, for changes.

import { h } from "./dom.js";

/// `{ element, names(), isTogether() }` for `name`, one of `replicas`; `isTogether` is the initial choice. `element` is `null` for a block without
/// replicas; `prefix` is the prefix of ids.
export function scope(prefix, replicas, name, isTogether) {
  if (replicas.length < 2) return { element: null, names: () => [name], isTogether: () => false };
  const option = (value, text) => h("label", {},
    h("input", { type: "radio", name: `${prefix}-scope`, value, checked: isTogether === (value === "all") }), ` ${text}`);
  const all = option("all", `all ${replicas.length} replicas`);
  const element = h("fieldset", { class: "scope" }, h("legend", {}, "change"), all, option("one", `only ${name}`));
  const isAll = () => all.firstChild.checked;
  return { element, names: () => (isAll() ? replicas : [name]), isTogether: isAll };
}
