// What limits the server now, its speed, its memory and what of the prompts was found.

// The elements that show one number of the snapshot: data-field is its path there. A test compares
// data-value with the snapshot, and what is read with data-value.
function drawFields(root, snapshot) {
  for (const element of root.querySelectorAll('[data-field]')) {
    const path = element.dataset.field.split('.');
    const value = path.reduce((object, name) => object?.[name], snapshot);
    element.dataset.value = value ?? '';
    const {format} = element.dataset;
    if (format === 'text') setText(element, String(value || NONE));
    else if (format === 'bytes_as_tokens') {
      const perToken = snapshot.kv?.bytes_per_token;
      setText(element, say('count', isNumber(value) && perToken ? value / perToken : null));
    } else setText(element, say(format, value));
  }
}

const STATES = [
  ['active', 'Active'], ['reserved', 'Reserved'], ['cached', 'Cached'], ['free', 'Free'],
];

const BOUNDS = {
  idle: 'Idle', compute: 'Compute-bound', kv: 'KV-bound', queue: 'Queue-bound',
};

const CONFIG = [
  ['Model', 'config.model', 'text'],
  ['Context', 'config.context', 'count', 'tokens'],
  ['Capacity of the KV cache', 'kv.capacity_tokens', 'count', 'tokens'],
  ['KV memory', 'kv.budget_bytes', 'bytes'],
  ['K and V of a token', 'kv.bytes_per_token', 'bytes'],
  ['Block', 'kv.block_tokens', 'count', 'tokens'],
  ['Type of K', 'config.k_dtype', 'text'],
  ['Type of V', 'config.v_dtype', 'text'],
  ['Eviction', 'kv.eviction', 'text'],
  ['Who is next', 'config.policy', 'text'],
  ['Computed at once', 'config.max_running', 'count', 'sequences'],
  ['Step', 'config.step_tokens', 'count', 'tokens at most'],
  ['May wait', 'config.max_waiting', 'count', 'requests'],
  ['Threads', 'config.threads', 'count'],
  ['Instruction set', 'config.isa', 'text'],
  ['Speculation', 'config.speculation', 'text'],
  ['Up for', 'uptime_s', 'duration'],
];

class Overview {
  constructor() {
    byId('config').append(...CONFIG.map(([name, field, format, unit]) =>
      make('div', {}, make('dt', {}, name),
           make('dd', {}, make('data', {'data-field': field, 'data-format': format}, NONE),
                unit ? ` ${unit}` : null))));
    const spark = (id, title, series, format) => new Chart(
      document.querySelector(`[data-spark=${id}]`),
      {title, kind: 'lines', isSmall: true, series, format});
    const percentiles = (field) => [
      {name: 'p50', key: 'p50', value: (point) => point[field]?.p50},
      {name: 'p99', key: 'p99', value: (point) => point[field]?.p99},
    ];
    const rate = (field) => [
      {name: 'Tokens per second', key: 'p50', value: (point) => point[field]},
    ];
    this.charts = [
      spark('generated', 'Generated tokens', rate('generated_tokens_per_s'), 'rate'),
      spark('prompts', 'Prompt tokens', rate('prompt_tokens_per_s'), 'rate'),
      spark('ttft', 'Time to first token', percentiles('ttft_ms'), 'ms'),
      spark('between', 'Time between tokens', percentiles('itl_ms'), 'ms'),
      new Chart(document.querySelector('[data-chart=memory]'), {
        title: 'KV memory', kind: 'areas', format: 'bytes', maximum: () => this.budget,
        series: STATES.slice(0, 3).map(([key, name]) =>
          ({key, name, value: (point) => poolOf(point)?.[key]})),
      }),
    ];
    const host = document.querySelector('[data-chart=reuse]');
    this.reuseSeries = [
      ...PLACES.map(([key, name]) => ({key, name, value: (point) => point.hits?.[key]})),
      ...REASONS.map(([key, name]) => ({key, name, value: (point) => point.misses?.[key]})),
    ];
    this.charts.push(new Chart(host, {
      title: 'Prompt tokens found and missed', kind: 'shares', format: 'count',
      series: this.reuseSeries,
    }));
    this.reuseLegend = make('dl', {class: 'legend reasons'});
    host.append(this.reuseLegend);
  }

  // `requests`: those of the same moment. The page's time stamp says which snapshot it shows.
  // Returns whether figures of everybody's requests are there.
  drawStatus(status, requests) {
    const snapshot = {...status, pool: poolOf(status.kv ?? {}), requests};
    this.budget = status.kv?.budget_bytes;
    // A tenant among several sees its own part, and no figures of everybody's.
    const isAll = status.kv?.bytes !== undefined;
    for (const element of document.querySelectorAll('.for-all')) element.hidden = !isAll;
    byId('own-part').hidden = isAll;
    const {bound, text, lever} = status.verdict ?? {};
    byId('now').dataset.bound = bound;
    setText(byId('verdict-text'), text ?? '');
    setText(byId('lever'), lever ?? '');
    byId('lever-line').hidden = !lever;
    document.title = `${BOUNDS[bound] ?? 'Serving'} · kvern`;
    setText(byId('model'), status.config?.model ?? '');
    this.drawPool(snapshot.pool);
    this.drawRecomputed(status.recomputed ?? []);
    drawFields(byId('overview'), snapshot);
    byId('page').dataset.snapshot = status.time;
    return isAll;
  }

  // A bar from left to right in the order of its legend.
  drawPool(pool) {
    const bar = byId('pool');
    for (const [key] of STATES) {
      const share = this.budget ? (100 * (pool?.[key] ?? 0)) / this.budget : 0;
      bar.querySelector(`.${key}`).style.width = `${share}%`;
    }
    const words = STATES.map(([key, name]) => `${name} ${say('bytes', pool?.[key])}`);
    bar.setAttribute('aria-label', `KV memory by state: ${words.join(', ')}`);
  }

  drawRecomputed(list) {
    byId('no-recomputed').hidden = list.length > 0;
    const items = list.map(({prefix, tokens: number, times, reason, why}) => make('li', {},
      make('p', {class: 'prefix'}, prefix),
      make('p', {}, make('b', {}, `${tokens(number)} × ${formats.count(times)}`), ' ',
           make('span', {class: 'muted'}, why || reasonName(reason)))));
    const host = byId('recomputed');
    if (host.textContent !== items.map((item) => item.textContent).join('')) {
      host.replaceChildren(...items);
    }
  }

  drawHistory(points, now) {
    for (const chart of this.charts) chart.draw(points, now);
    const sums = this.reuseSeries.map(({value}) => sumOf(points.map((point) => value(point) ?? 0)));
    const total = sumOf(sums);
    const found = sumOf(sums.slice(0, PLACES.length));
    setText(byId('reuse-share'), total
      ? `${formats.percent(found / total)} of ${tokens(total)} found in the last 15 minutes`
      : 'No prompts in the last 15 minutes');
    this.reuseLegend.replaceChildren(...this.reuseSeries.flatMap(({key, name}, i) => sums[i]
      ? [make('div', {}, make('dt', {}, make('i', {class: key}), name),
              make('dd', {}, formats.count(sums[i]),
                   make('span', {}, formats.percent(sums[i] / total))))]
      : []));
  }
}

// Of the whole pool, or of the caller's own part where he may not see more.
function poolOf({bytes, own}) {
  if (bytes) return bytes;
  return own && {active: own.active_bytes, cached: own.cached_bytes};
}
