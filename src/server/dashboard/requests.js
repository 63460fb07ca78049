// The table of requests: those that are served, with what each waits for, and those that ended.

const STATE_NAMES = {
  waiting: 'Waiting', waiting_prefix: 'Waiting', loading: 'Loading', running: 'Running',
  paused: 'Paused', finished: 'Finished', cancelled: 'Cancelled', failed: 'Failed',
};
const CAUSES = {
  turn: 'its turn', memory: 'memory', prefix: 'a prefix', tier: 'a tier', reader: 'its reader',
};
const NUM_ENDED = 12;

const isOver = ({state}) => ['finished', 'cancelled', 'failed'].includes(state);
const isWaiting = ({state}) => !isOver({state}) && state !== 'running';
const cell = (label, ...children) => make('td', {role: 'cell', 'data-label': label}, ...children);

// A bar of a prompt: what was found, what has been computed, what is still to do.
class PromptBar {
  constructor() {
    this.found = make('span', {class: 'found'});
    this.computed = make('span', {class: 'computed'});
    this.words = make('span', {class: 'small'});
    this.element = make('div', {class: 'prompt'},
      make('span', {class: 'track', 'aria-hidden': 'true'}, this.found, this.computed), this.words);
  }

  draw({prompt_tokens: total, found_tokens: found, computed_tokens: computed}) {
    this.found.style.width = `${total ? (100 * found) / total : 0}%`;
    this.computed.style.width = `${total ? (100 * computed) / total : 0}%`;
    setText(this.words, `${formats.count(found)} found, ${formats.count(computed)} computed ` +
                        `of ${formats.count(total)}`);
  }
}

class RequestRow {
  constructor(request, table) {
    this.id = request.id;
    this.name = make('span', {class: 'name'});
    this.toggle = make('button', {
      type: 'button', class: 'link', 'aria-expanded': 'false', onclick: () => table.open(this),
    }, this.name);
    this.who = make('span', {class: 'small'});
    this.state = make('span', {class: 'state'});
    this.why = make('span', {class: 'why'});
    this.prompt = new PromptBar();
    this.answer = make('span');
    this.last = make('span', {class: 'small'});
    this.cancel = make('button', {
      type: 'button', class: 'cancel', onclick: () => table.cancel(this),
      'aria-label': `Cancel request ${request.id}`,
    }, 'Cancel');
    this.element = make('tr', {role: 'row', 'data-id': request.id},
      cell('Request', this.toggle, this.who), cell('State', this.state, this.why),
      cell('Prompt', this.prompt.element), cell('Answer', this.answer),
      cell('', isOver(request) ? this.last : this.cancel));
  }

  draw(request, now) {
    const {state, waits_for: cause, completion_tokens: said, max_tokens: most} = request;
    setText(this.name, endpointName(request.endpoint));
    const place = chatRequests.has(request.id) ? 'this page' : request.tenant;
    const age = isOver(request) ? clockTime(request.created) : formats.age(now - request.created);
    setText(this.who, place ? `${place}, ${age}` : age);
    this.state.dataset.state = state;
    setText(this.state, (STATE_NAMES[state] ?? state) +
                        (isWaiting(request) && cause ? ` for ${CAUSES[cause] ?? cause}` : ''));
    setText(this.why, isOver(request) ? request.error ?? endOf(request) : request.why ?? '');
    this.prompt.draw(request);
    setText(this.answer, most && !isOver(request)
      ? `${formats.count(said)} of ${formats.count(most)}` : formats.count(said));
    setText(this.last, `first ${say('ms', request.ttft_ms)}, all ${say('ms', request.total_ms)}`);
  }
}

function endOf({finish, state}) {
  const words = {
    stop: 'said all it had to say', length: 'reached its length', deadline: 'reached its deadline',
  };
  return state === 'finished' ? words[finish] ?? '' : '';
}

class RequestTable {
  constructor() {
    this.live = new Map();
    this.ended = new Map();
    this.opened = null;
    byId('ended').addEventListener('toggle', () => this.last && this.draw(...this.last));
  }

  // Of the snapshot: how many run and wait.
  static count(list) {
    return {
      running: list.filter(({state}) => state === 'running').length,
      waiting: list.filter(isWaiting).length,
    };
  }

  draw(list, now) {
    this.last = [list, now];
    const live = list.filter((request) => !isOver(request));
    const over = list.filter(isOver).slice(0, NUM_ENDED);
    this.sync(byId('live-rows'), this.live, live, now);
    this.sync(byId('ended-rows'), this.ended, byId('ended').open ? over : [], now);
    byId('no-requests').hidden = live.length > 0;
    byId('live-table').hidden = live.length === 0;
    byId('ended').hidden = over.length === 0;
  }

  // Rows stay the same elements, for the focus may be in one.
  sync(body, rows, requests, now) {
    const wanted = new Set(requests.map(({id}) => id));
    for (const [id, row] of rows) {
      if (wanted.has(id)) continue;
      if (this.opened === row) this.close();
      row.element.remove();
      rows.delete(id);
    }
    let next = body.firstElementChild;
    for (const request of requests) {
      const row = rows.get(request.id) ?? new RequestRow(request, this);
      rows.set(request.id, row);
      row.draw(request, now);
      if (row.element === next) next = next.nextElementSibling;
      else body.insertBefore(row.element, next);
      if (next?.classList.contains('detail')) next = next.nextElementSibling;
    }
  }

  async cancel(row) {
    row.cancel.disabled = true;
    try {
      const {cancelled} = await ask('DELETE', `requests/${encodeURIComponent(row.id)}`);
      setText(byId('requests-status'), cancelled ? `Request ${row.id} is cancelled.`
                                                 : `Request ${row.id} had ended already.`);
    } catch (error) {
      setText(row.why, error.message);
      row.cancel.disabled = false;
    }
  }

  close() {
    this.opened?.toggle.setAttribute('aria-expanded', 'false');
    this.detail?.remove();
    this.opened = null;
  }

  async open(row) {
    const wasOpen = this.opened === row;
    this.close();
    if (wasOpen) return;
    this.opened = row;
    row.toggle.setAttribute('aria-expanded', 'true');
    const content = make('td', {role: 'cell', colspan: '5'}, 'Asking…');
    this.detail = make('tr', {role: 'row', class: 'detail'}, content);
    row.element.after(this.detail);
    try {
      const request = await ask('GET', `requests/${encodeURIComponent(row.id)}`);
      content.replaceChildren(...detailsOf(request));
    } catch (error) {
      setText(content, error.message);
    }
  }
}

const EVENT_NAMES = {
  queued: 'Came, with a prompt of', waiting: 'Waits for another request until token',
  loading: 'Loads from a tier', admitted: 'Begins, tokens found', prefill: 'Prompt tokens computed',
  first_token: 'First token, of completion', forked: 'Shares its prompt with completion',
  preempted: 'Made room for others, tokens left to the cache', resumed: 'Goes on, tokens found',
  paused: 'Its reader is behind', unpaused: 'Its reader has caught up',
  self_check: 'Checked against itself at token', finished: 'Ended, tokens of the answer',
  failed: 'Failed',
};
const WITHOUT_AMOUNT = ['paused', 'unpaused', 'failed'];

function detailsOf(request) {
  const {misses = [], events = [], prompt = {}} = request;
  const found = PLACES.flatMap(([key, name]) =>
    prompt[key] ? [make('li', {}, `${name}: ${tokens(prompt[key])}`)] : []);
  const missed = misses.map((miss) => make('li', {},
    `${reasonName(miss.reason)}: ${tokens(miss.tokens)} from token ` +
    `${formats.count(miss.position)} on${miss.cause ? `, ${miss.cause}` : ''}`));
  const log = events.map((event) => make('li', {},
    make('span', {class: 'time'}, formats.ms(event.time_ms)), EVENT_NAMES[event.kind] ?? event.kind,
    WITHOUT_AMOUNT.includes(event.kind) ? '' : ` ${formats.count(event.amount)}`));
  return [
    make('p', {class: 'small'}, `Request ${request.id}, ${request.endpoint}; ` +
         `waited ${say('ms', request.queue_ms)}, ` +
         `first token after ${say('ms', request.ttft_ms)}, ` +
         `${say('ms', request.tpot_ms)} between tokens`),
    make('div', {class: 'pair'},
      make('div', {}, make('h3', {}, 'Its prompt'), make('ul', {}, ...found, ...missed)),
      make('div', {}, make('h3', {}, 'What happened'), make('ol', {class: 'events'}, ...log))),
  ];
}
