// Conversion of block pages to elements, for the subset of Markdown that they use.

import { h } from "./dom.js";

/// Converts `text` to an element.
export function markdown(text) {
  const root = h("article", { class: "doc-page" });
  const lines = text.split("\n");
  let place = 0;
  const until = (isEnd) => {
    const start = place;
    while (place < lines.length && !isEnd(lines[place])) place += 1;
    return lines.slice(start, place);
  };
  while (place < lines.length) {
    const line = lines[place];
    if (line.trim() === "") place += 1;
    else if (line.startsWith("```")) {
      place += 1;
      root.append(h("pre", {}, until((next) => next.startsWith("```")).join("\n")));
      place += 1;
    } else if (/^#+ /.test(line)) {
      place += 1;
      root.append(h(line.startsWith("# ") ? "h3" : "h4", {}, inline(line.replace(/^#+ /, ""))));
    } else if (line.startsWith("|")) root.append(table(until((next) => !next.startsWith("|"))));
    else if (line.startsWith("- ")) {
      const items = until((next) => next.trim() === "").join("\n").split(/^- /m).slice(1);
      root.append(h("ul", {}, items.map((item) => h("li", {}, inline(item.replace(/\s*\n\s*/g, " "))))));
    } else root.append(h("p", {}, inline(until((next) => next.trim() === "" || /^(```|#|\||- )/.test(next)).join(" "))));
  }
  return root;
}

function table(lines) {
  const rows = lines.filter((line) => !/^\|[-:| ]+\|$/.test(line)).map((line) => line.split("|").slice(1, -1).map((cell) => cell.trim()));
  const [head, ...body] = rows;
  return h("div", { class: "wide" }, h("table", {},
    head.some(Boolean) && h("thead", {}, h("tr", {}, head.map((cell) => h("th", {}, inline(cell))))),
    h("tbody", {}, body.map((row) => h("tr", {}, row.map((cell) => h("td", {}, inline(cell))))))));
}

/// Code, emphasis and links within a line; links are shown as text, since they point into the repository.
function inline(text) {
  return text.split(/(`[^`]+`|\*\*[^*]+\*\*|\[[^\]]+\]\([^)]+\))/).map((part) => {
    if (part.startsWith("`")) return h("code", {}, part.slice(1, -1));
    if (part.startsWith("**")) return h("strong", {}, part.slice(2, -2));
    const link = part.match(/^\[([^\]]+)\]\([^)]+\)$/);
    return link ? link[1].replaceAll("`", "") : part.replace(/\\([[\]*_])/g, "$1");
  });
}
