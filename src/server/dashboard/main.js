// Puts the parts together: who may see what, what is asked how often, and what happens when nobody
// answers.

const STATUS_MS = 1000;
const HISTORY_MS = 5000;

const overview = new Overview();
const table = new RequestTable();
new Chat();

let history = [];
let lastSeen = null;  // when the server answered last, in this page's time

function showBanner(text) {
  byId('banner').hidden = !text;
  setText(byId('banner'), text);
}

// What went wrong with a poll, for people. The page goes on trying.
function explain(error) {
  if (error.name === 'AbortError') return;
  if (error.status === 401) return lock(key.get() ? 'The server does not know this key.' : '');
  if (error.status === 403) return showChatOnly();
  if (error.status === 503) return showBanner(`${error.message}. This page goes on trying.`);
  const since = lastSeen && `Figures are ${formats.duration((Date.now() - lastSeen) / 1000)} old. `;
  byId('page').classList.toggle('stale', error instanceof Offline);
  showBanner(`${error.message} ${since ?? ''}Trying again.`);
}

const status = new Poller(STATUS_MS, async (signal) => {
  try {
    const [drawn, requests] = await Promise.all(
      [ask('GET', 'status', {signal}), ask('GET', 'requests', {signal})]);
    lastSeen = Date.now();
    byId('page').classList.remove('stale');
    showBanner('');
    const isAll = overview.drawStatus(drawn, RequestTable.count(requests.data));
    charts.switchTo(isAll);
    table.draw(requests.data, requests.now);
    byId('page').dataset.requests = requests.now;
  } catch (error) {
    explain(error);
  }
});

const charts = new Poller(HISTORY_MS, async (signal) => {
  try {
    const since = history.at(-1)?.time;
    const {points} = await ask('GET', since ? `history?since=${since}` : 'history', {signal});
    const known = new Set(history.map(({time}) => time));
    history = [...history, ...points.filter(({time}) => !known.has(time))];
    const now = history.at(-1)?.time ?? 0;
    history = history.filter(({time}) => now - time <= SPAN_S);
    overview.drawHistory(history, now);
  } catch {
    // The other poll says what is wrong.
  }
});

// For a key that may infer and not inspect: asking again would not help.
function showChatOnly() {
  status.switchTo(false);
  byId('overview').hidden = true;
  showBanner('This key may chat. The figures need one with the right to inspect.');
}

function lock(problem) {
  status.switchTo(false);
  charts.switchTo(false);
  showBanner('');
  key.forget();
  byId('lock').hidden = false;
  byId('content').hidden = true;
  byId('forget-key').hidden = true;
  setText(byId('key-problem'), problem);
  byId('key').focus();
}

function unlock() {
  byId('lock').hidden = true;
  byId('content').hidden = false;
  byId('forget-key').hidden = !key.get();
  byId('overview').hidden = false;
  status.switchTo(true);
}

byId('key-form').addEventListener('submit', (event) => {
  event.preventDefault();
  key.set(byId('key').value.trim());
  byId('key').value = '';
  unlock();
});

byId('forget-key').addEventListener('click', () => {
  history = [];
  lock('');
});

unlock();
