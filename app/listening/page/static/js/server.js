// Requests to the server, in the name of the listener.

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const STORED = "relpe-listener";
let listener = "";

// The current listener: of this browser until the end of the test, then of this tab, so that the
// last page can be loaded again but another person can use the browser.
export function storedListener() {
  try {
    return sessionStorage.getItem(STORED) ?? localStorage.getItem(STORED) ?? "";
  } catch {
    return ""; // storage is switched off
  }
}

export function hasFinished() {
  try {
    return Boolean(sessionStorage.getItem(STORED));
  } catch {
    return false;
  }
}

export function setListener(code, { finished = false } = {}) {
  listener = code;
  try {
    sessionStorage.removeItem(STORED);
    localStorage.removeItem(STORED);
    if (code) (finished ? sessionStorage : localStorage).setItem(STORED, code);
  } catch {
    // the listener can type the code
  }
}

async function request(path, options = {}) {
  const headers = { ...options.headers };
  if (listener) headers.Listener = listener;
  const answer = await fetch(path, { ...options, headers });
  if (answer.ok) return answer;
  let message = `The server answered with status ${answer.status}.`;
  try {
    message = (await answer.json()).error ?? message;
  } catch {
    // not JSON: of a proxy
  }
  throw new Refused(answer.status, message);
}

export const get = async (path) => (await request(path)).json();

export async function post(path, content = {}) {
  const headers = { "Content-Type": "application/json" };
  return (await request(path, { method: "POST", headers, body: JSON.stringify(content) })).json();
}

const clips = new Map(); // promises of addresses of loaded audio, by path

export function loadClip(trial, side) {
  const path = `clips/${trial}/${side}`;
  if (!clips.has(path)) {
    const loading = request(path)
      .then((answer) => answer.blob())
      .then((blob) => URL.createObjectURL(blob));
    loading.catch(() => clips.delete(path)); // the next attempt loads it again
    clips.set(path, loading);
  }
  return clips.get(path);
}

export function forgetClips(beforeTrial) {
  for (const [path, loading] of clips) {
    if (Number(path.split("/")[1]) < beforeTrial) {
      clips.delete(path);
      loading.then(URL.revokeObjectURL, () => {});
    }
  }
}
