// Search, keys, and copies of code. The manual works without this script, but for the search.
const { root } = document.currentScript.dataset;
const field = document.querySelector("header input");
const found = document.querySelector("#found");
const main = document.querySelector("main");
/** Most results that are shown. */
const MOST = 40;
/** Characters of an excerpt. */
const EXCERPT = 220;

const element = (name, properties, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};

/** Loads the index; a script, because pages on a disk may fetch no files. */
let loading;
const load = () => loading ??= new Promise((resolve, reject) => {
  const fail = (error) => { loading = undefined; reject(error); };
  const script = element("script", { src: `${root}search.js`, onload: resolve, onerror: fail });
  document.head.append(script);
});

/** Ranks a section: every word must occur; headings count most, then whole words, then frequent ones. */
function rank([address, title, heading, text], words) {
  const names = `${title} ${heading}`.toLowerCase(), body = text.toLowerCase();
  let sum = 0;
  for (const word of words) {
    const count = body.split(word).length - 1;
    const isNamed = names.includes(word);
    if (!isNamed && count === 0) return 0;
    sum += Math.log2(1 + count) + (isNamed ? 8 : 0);
    if (title.toLowerCase() === word) sum += 12;
    if (heading.toLowerCase() === word) sum += 12;
    const at = body.indexOf(word);
    if (at >= 0 && !/\w/.test(body[at - 1] ?? " ") && !/\w/.test(body[at + word.length] ?? " ")) sum += 2;
  }
  return body.includes(words.join(" ")) ? sum + 4 : sum;
}

/** Text around the first of the words, with all of them marked. */
function excerpt(text, words) {
  const body = text.toLowerCase();
  const first = Math.min(...words.map((word) => body.indexOf(word)).filter((at) => at >= 0), text.length);
  const start = first === text.length ? 0 : Math.max(0, body.lastIndexOf(" ", Math.max(0, first - 60)));
  const part = text.slice(start, start + EXCERPT);
  const pattern = words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|");
  const pieces = part.split(new RegExp(`(${pattern})`, "i"));
  const marked = pieces.map((piece, index) => index % 2 ? element("mark", { textContent: piece }) : piece);
  return [start > 0 ? "… " : "", ...marked, start + EXCERPT < text.length ? " …" : ""];
}

async function search() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  found.hidden = words.length === 0;
  main.hidden = !found.hidden;
  if (found.hidden) return;
  try {
    await load();
  } catch {
    return found.replaceChildren("The index of the search cannot be loaded.");
  }
  const ranked = globalThis.sections.map((section) => [rank(section, words), section]).filter(([sum]) => sum > 0);
  ranked.sort(([a], [b]) => b - a);
  const shown = ranked.slice(0, MOST).flatMap(([, [address, title, heading, text]]) => [
    element("h2", {}, element("a", { href: root + address, textContent: heading }),
      element("span", { className: "where", textContent: heading === title ? "" : ` ${title}` })),
    element("p", {}, ...excerpt(text, words)),
  ]);
  const count = ranked.length > MOST ? `the first ${MOST} of ${ranked.length} sections` : `${ranked.length} sections`;
  found.replaceChildren(element("p", { className: "where", textContent: `${count} with ${words.join(", ")}` }), ...shown);
}

function leave() {
  field.value = "";
  search();
}

field.addEventListener("focus", () => load().catch(() => {}));
field.addEventListener("input", search);
// A result on the same page only changes the anchor.
found.addEventListener("click", (event) => { if (event.target.closest("a")) leave(); });
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.target === field) {
    if (event.key === "Escape") { leave(); field.blur(); }
    if (event.key === "Enter") found.querySelector("a")?.click();
  } else if (event.key === "/" || event.key === "s") {
    event.preventDefault();
    field.focus();
  } else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
    document.querySelector(`footer [rel="${event.key === "ArrowLeft" ? "prev" : "next"}"]`)?.click();
  }
});

// The second click on the menu closes it.
document.querySelector("header .menu").addEventListener("click", (event) => {
  if (location.hash !== "#contents") return;
  event.preventDefault();
  location.hash = "";
});

const contents = document.querySelector("#contents");
const current = contents.querySelector("[aria-current]");
if (current) contents.scrollTop = current.offsetTop - contents.clientHeight / 3;

for (const pre of document.querySelectorAll("pre")) {
  const button = element("button", { type: "button", textContent: "copy" });
  button.addEventListener("click", () => {
    // Also without HTTPS, where browsers have no `navigator.clipboard`.
    getSelection().selectAllChildren(pre);
    document.execCommand("copy");
    getSelection().removeAllRanges();
    button.textContent = "copied";
  });
  const box = element("div", { className: "code" });
  pre.before(box);
  box.append(pre, button);
}

// `?search=words` is an address of results.
const wanted = new URLSearchParams(location.search).get("search");
if (wanted) {
  field.value = wanted;
  search();
}
