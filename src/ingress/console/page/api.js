// The calls of the API, and the stream of events.

export class Failed extends Error {
  constructor(status, body) {
    super(body.error || `the console answered ${status}`);
    this.status = status;
    this.body = body;
  }
}

async function call(method, path, body, signal) {
  const answer = await fetch(`api/${path}`, {
    method,
    signal,
    credentials: "same-origin",
    headers: body === undefined ? {} : { "content-type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const read = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Failed(answer.status, read);
  return read;
}

export const get = (path, signal) => call("GET", path, undefined, signal);
export const post = (path, body = {}) => call("POST", path, body);

/** Returns a path with a query. Empty fields are left out. */
export function query(path, fields) {
  const pairs = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(pairs).toString();
  return text ? `${path}?${text}` : path;
}

export const segment = encodeURIComponent;

/** Passes events to `tell` until `signal` is aborted. A stream that breaks off is opened again a second later. */
export async function follow(path, signal, tell) {
  while (!signal.aborted) {
    try {
      const answer = await fetch(`api/${path}`, { signal, credentials: "same-origin" });
      if (!answer.ok) throw new Failed(answer.status, await answer.json().catch(() => ({})));
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const pieces = (rest + value).split("\n\n");
        rest = pieces.pop();
        for (const piece of pieces) if (piece.startsWith("data: ")) tell(JSON.parse(piece.slice(6)));
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Failed && error.status !== 503) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}
