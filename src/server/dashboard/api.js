// Talks to the server that this page came from, and to nobody else.

const KEY_NAME = 'kvern-key';
const TIMEOUT_MS = 8000;

// What the server refused, with its own words.
class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// Nobody answers.
class Offline extends Error {}

const key = {
  get: () => sessionStorage.getItem(KEY_NAME),
  set: (value) => sessionStorage.setItem(KEY_NAME, value),
  forget: () => sessionStorage.removeItem(KEY_NAME),
};

// The reply, whose body is still to be read. Paths are relative: a proxy may put a folder in front.
// Throws Refused, Offline, or AbortError where `signal` said so.
async function request(method, path, {body, signal} = {}) {
  const headers = {};
  if (key.get()) headers.Authorization = `Bearer ${key.get()}`;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  let reply;
  try {
    reply = await fetch(path, {
      method, headers, signal, body: body && JSON.stringify(body), cache: 'no-store',
      referrerPolicy: 'no-referrer',
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Offline('The server does not answer.');
  }
  if (reply.ok) return reply;
  const told = await reply.json().catch(() => null);
  throw new Refused(reply.status, told?.error?.message ?? `The server said ${reply.status}.`);
}

// The reply's JSON. One that takes too long counts as none.
async function ask(method, path, {body, signal} = {}) {
  const abort = new AbortController();
  const stop = () => abort.abort();
  signal?.addEventListener('abort', stop);
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
    stop();
  }, TIMEOUT_MS);
  try {
    const reply = await request(method, path, {body, signal: abort.signal});
    return await reply.json();
  } catch (error) {
    if (isLate || error instanceof TypeError) throw new Offline('The server does not answer.');
    throw error;
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', stop);
  }
}

// Calls `run(signal)` once a period, not while the page is hidden, and never twice at once.
class Poller {
  constructor(periodMs, run) {
    this.periodMs = periodMs;
    this.run = run;
    this.isOn = false;
    document.addEventListener('visibilitychange', () => this.restart());
  }

  switchTo(isOn) {
    if (this.isOn === isOn) return;
    this.isOn = isOn;
    this.restart();
  }

  restart() {
    clearTimeout(this.timer);
    this.abort?.abort();
    if (this.isOn && !document.hidden) this.turn(new AbortController());
  }

  async turn(abort) {
    this.abort = abort;
    const began = performance.now();
    await this.run(abort.signal);
    if (abort.signal.aborted) return;  // another turn has begun, or none shall
    const restMs = Math.max(0, this.periodMs - (performance.now() - began));
    this.timer = setTimeout(() => this.turn(abort), restMs);
  }
}
