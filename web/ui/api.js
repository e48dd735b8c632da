// Asks the REST API, and follows its streams of events.

import { save } from "./dom.js";

const TOKEN = "fxgraph-token";
const ROOT = "/api/v1";
const JSON_HEADERS = { "Content-Type": "application/json" };

/// What the server says is wrong: a problem document (RFC 9457).
export class Problem extends Error {
  constructor(status, { title, detail, help = [], diagnostics = [] }) {
    super(detail ?? title ?? `the server answered with status ${status}`);
    Object.assign(this, { status, help, diagnostics });
  }
}

let asking = null;
let prompt = async () => "";

/// `ask` gets a token from the user when the server wants one.
export function onToken(ask) {
  prompt = ask;
}

/// One question to the user, however many requests wait for its answer.
async function newToken() {
  asking ??= prompt().then((token) => sessionStorage.setItem(TOKEN, token)).finally(() => (asking = null));
  await asking;
}

/// The path of a block under `/api/v1`.
export const block = (name) => `/blocks/${encodeURIComponent(name)}`;
export const output = (name, port) => `${block(name)}/outputs/${encodeURIComponent(port)}`;

/// A response that is fine; otherwise throws a `Problem`, or a `TypeError` if nothing answers.
export async function request(path, options = {}) {
  for (;;) {
    const token = sessionStorage.getItem(TOKEN);
    const headers = { ...options.headers, ...(token && { Authorization: `Bearer ${token}` }) };
    const response = await fetch(ROOT + path, { cache: "no-store", ...options, headers });
    if (response.ok) return response;
    const said = await response.json().catch(() => ({}));
    if (response.status !== 401) throw new Problem(response.status, said);
    // Another request may have brought a token meanwhile.
    if (token === sessionStorage.getItem(TOKEN)) await newToken();
  }
}

export const ask = async (path, options) => (await request(path, options)).json();

/// Sends `body`, which is JSON.
export const patch = (path, body) =>
  ask(path, { method: "PATCH", headers: JSON_HEADERS, body });

/// Sends `body`, which is JSON, or nothing.
export const post = (path, body) =>
  ask(path, { method: "POST", ...(body !== undefined && { headers: JSON_HEADERS, body }) });

/// Sends `body`, which is YAML.
export const put = (path, body) => ask(path, { method: "PUT", headers: { "Content-Type": "application/yaml" }, body });

export const remove = (path) => ask(path, { method: "DELETE" });

/// Saves what is at `path`, an array for NumPy, as `name` with its timestamp.
export async function download(path, name) {
  const response = await request(path);
  save(await response.blob(), `${name}.${response.headers.get("fxgraph-timestamp")}.npy`);
}

/// The same of the next frame of an output.
export const downloadFrame = (block, port) =>
  download(`${output(block, port)}/snapshot?format=npy&max_bytes=${1 << 28}`, `${block}.${port}`);

const pause = (milliseconds, signal) =>
  new Promise((done) => {
    const timer = setTimeout(done, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), done()), { once: true });
  });

/// Follows the stream of server-sent events at `path` until `signal`; begins again when it breaks, behind
/// the last event that it knows. (`EventSource` cannot send a token.) `onProblem` hears why it is refused.
export async function follow(path, { signal, onEvent, onProblem = () => {} }) {
  let last = null;
  let wait = 500;
  while (!signal.aborted) {
    try {
      const headers = { Accept: "text/event-stream", ...(last !== null && { "Last-Event-ID": last }) };
      const response = await request(path, { headers, signal });
      wait = 500;
      for await (const event of events(response.body)) {
        if (event.id !== undefined) last = event.id;
        if (event.data !== undefined) onEvent(event.name, JSON.parse(event.data));
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem) onProblem(error);
    }
    await pause(wait, signal);
    wait = Math.min(2 * wait, 5000);
  }
}

/// The events of a body, as the standard has them: lines of fields, an empty line behind each event.
async function* events(body) {
  let text = "";
  let event = { name: "message" };
  for await (const part of parts(body)) {
    text += part;
    const lines = text.split(/\r\n|\n|\r(?!$)/);
    text = lines.pop();
    for (const line of lines) {
      if (line === "") {
        yield event;
        event = { name: "message" };
        continue;
      }
      const [, field, value] = line.match(/^([^:]*):? ?(.*)$/);
      if (field === "data") event.data = event.data === undefined ? value : `${event.data}\n${value}`;
      else if (field === "event") event.name = value;
      else if (field === "id") event.id = value;
    }
  }
}

async function* parts(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
