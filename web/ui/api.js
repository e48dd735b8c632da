// Client of the REST API and of its event streams.

import { save } from "./dom.js";

const TOKEN = "fxgraph-token";
const ROOT = "/api/v1";
const JSON_HEADERS = { "Content-Type": "application/json" };

/// An error response of the server: a problem document (RFC 9457).
export class Problem extends Error {
  constructor(status, { title, detail, help = [], diagnostics = [] }) {
    super(detail ?? title ?? `the server responded with status ${status}`);
    Object.assign(this, { status, help, diagnostics });
  }
}

let asking = null;
let prompt = async () => "";

/// `ask` gets a token from the user when the server requires one.
export function onToken(ask) {
  prompt = ask;
}

/// A single question to the user, shared by all waiting requests.
async function newToken() {
  asking ??= prompt().then((token) => sessionStorage.setItem(TOKEN, token)).finally(() => (asking = null));
  await asking;
}

/// The path of a block under `/api/v1`.
export const block = (name) => `/blocks/${encodeURIComponent(name)}`;
export const output = (name, port) => `${block(name)}/outputs/${encodeURIComponent(port)}`;

/// Returns a successful response; throws a `Problem`, or a `TypeError` without a response.
export async function request(path, options = {}) {
  for (;;) {
    const token = sessionStorage.getItem(TOKEN);
    const headers = { ...options.headers, ...(token && { Authorization: `Bearer ${token}` }) };
    const response = await fetch(ROOT + path, { cache: "no-store", ...options, headers });
    if (response.ok) return response;
    const said = await response.json().catch(() => ({}));
    if (response.status !== 401) throw new Problem(response.status, said);
    // Another request may have obtained a token meanwhile.
    if (token === sessionStorage.getItem(TOKEN)) await newToken();
  }
}

export const ask = async (path, options) => (await request(path, options)).json();

/// Sends the JSON text `body`.
export const patch = (path, body) =>
  ask(path, { method: "PATCH", headers: JSON_HEADERS, body });

/// Sends the JSON text `body`, or no body.
export const post = (path, body) =>
  ask(path, { method: "POST", ...(body !== undefined && { headers: JSON_HEADERS, body }) });

/// Sends the YAML text `body`.
export const put = (path, body) => ask(path, { method: "PUT", headers: { "Content-Type": "application/yaml" }, body });

export const remove = (path) => ask(path, { method: "DELETE" });

/// Saves the .npy array at `path` as `name` with its timestamp.
export async function download(path, name) {
  const response = await request(path);
  save(await response.blob(), `${name}.${response.headers.get("fxgraph-timestamp")}.npy`);
}

/// Saves the next frame of an output as .npy.
export const downloadFrame = (block, port) =>
  download(`${output(block, port)}/snapshot?format=npy&max_bytes=${1 << 28}`, `${block}.${port}`);

const pause = (milliseconds, signal) =>
  new Promise((done) => {
    const timer = setTimeout(done, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), done()), { once: true });
  });

/// Follows the stream of server-sent events at `path` until `signal`; if it breaks, reconnects after
/// the last known event. (`EventSource` cannot send a token.) `onProblem` is called if the server rejects the request.
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

/// Parses the events of a body: lines of fields, and an empty line after each event.
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
