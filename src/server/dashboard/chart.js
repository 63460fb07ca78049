// Charts of the last 15 minutes, as SVG that stretches to its place; words around it are HTML. Each
// says its content in a label and, where there is room, in a table.

const SPAN_S = 900;
const WIDTH = 900;
const HEIGHT = 100;
const GAP_S = 16;  // points further apart are not joined: nobody knows what was between
// A server that has just begun has not much to show: [seconds that a chart shows, bars].
const SPANS = [[120, 12], [300, 30], [SPAN_S, 30]];

// Runs of points without a gap.
function runsOf(points) {
  const runs = [];
  for (const point of points) {
    const run = runs.at(-1);
    if (run && point.time - run.at(-1).time <= GAP_S) run.push(point);
    else runs.push([point]);
  }
  return runs;
}

// A round number that is at least `value`.
function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}

const sumOf = (values) => values.reduce((sum, value) => sum + value, 0);
const meanOf = (values) => {
  const numbers = values.filter(isNumber);
  return numbers.length ? sumOf(numbers) / numbers.length : null;
};

// A chart of `series`, each {name, key, value(point) → number or null}. Kinds: "lines", "areas"
// that stand on each other, and "shares": bars of what each series is of all of them.
class Chart {
  constructor(host, {title, kind, series, format, isSmall = false, maximum = null}) {
    Object.assign(this, {title, kind, series, format, isSmall, maximum});
    this.svg = makeSvg('svg', {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img',
      'aria-label': title,
    });
    this.top = make('span', {class: 'top'});
    this.reading = make('span', {class: 'reading'});
    host.classList.add('chart', kind, ...(isSmall ? ['small'] : []));
    host.append(make('div', {class: 'plot'}, this.svg, this.top));
    if (isSmall) return;
    this.begin = make('span');
    host.append(make('div', {class: 'axis'}, this.begin, this.reading, make('span', {}, 'now')));
    this.table = make('table', {'aria-label': `${title}, by the minute`});
    this.details = make('details', {class: 'as-table', ontoggle: () => this.drawTable()},
                        make('summary', {}, 'As a table'),
                        make('div', {class: 'wide', tabindex: '0', role: 'region',
                                     'aria-label': `${title}, as a table`}, this.table));
    host.append(this.details);
    this.svg.addEventListener('pointermove', (event) => this.read(event));
    this.svg.addEventListener('pointerleave', () => setText(this.reading, ''));
  }

  draw(points, now) {
    this.points = points;
    this.now = now;
    const age = points.length ? now - points[0].time : 0;
    [this.span, this.numBars] = SPANS.find(([span]) => span >= age) ?? SPANS.at(-1);
    this.most = this.maximum?.() || roundUp(this.largest());
    const drawing = {lines: this.lines, areas: this.areas, shares: this.shares}[this.kind];
    this.svg.replaceChildren(...drawing.call(this));
    if (!this.isSmall) {
      const hasScale = points.length > 0 && this.kind !== 'shares';
      setText(this.top, hasScale ? say(this.format, this.most) : '');
      setText(this.begin, `${this.span / 60} min ago`);
    }
    this.svg.setAttribute('aria-label', this.inWords());
    if (this.details?.open) this.drawTable();
  }

  largest() {
    const totals = this.points.map((point) => {
      const values = this.series.map(({value}) => value(point) ?? 0);
      return this.kind === 'areas' ? sumOf(values) : Math.max(...values);
    });
    return Math.max(0, ...totals);
  }

  // From 0, the begin of the chart, to 1.
  place(time) {
    return Math.max(0, 1 - (this.now - time) / this.span);
  }

  x(time) {
    return (WIDTH * this.place(time)).toFixed(1);
  }

  y(value) {
    return (HEIGHT - (HEIGHT - 2) * Math.min(1, value / this.most)).toFixed(2);
  }

  // A value that is not there ends a line.
  lines() {
    return [...this.series].reverse().flatMap(({key, value}) =>
      runsOf(this.points.filter((point) => isNumber(value(point)))).map((run) => {
        const path = run.map((point) => `${this.x(point.time)} ${this.y(value(point))}`);
        if (run.length === 1) path.push(path[0]);
        return makeSvg('path', {d: `M${path.join('L')}`, class: key});
      }));
  }

  areas() {
    const shapes = [];
    for (const run of runsOf(this.points)) {
      let below = run.map(() => 0);
      for (const {key, value} of this.series) {
        const above = run.map((point, i) => below[i] + (value(point) ?? 0));
        const corner = (values) => (point, i) => `${this.x(point.time)} ${this.y(values[i])}`;
        const upper = run.map(corner(above));
        const lower = run.map(corner(below)).reverse();
        shapes.push(makeSvg('path', {d: `M${[...upper, ...lower].join('L')}Z`, class: key}));
        below = above;
      }
    }
    return shapes;
  }

  shares() {
    const width = WIDTH / this.numBars;
    return this.bars().flatMap((sums, i) => {
      const total = sumOf(sums);
      let below = 0;
      return sums.map((sum, s) => {
        const height = total ? (sum / total) * HEIGHT : 0;
        below += height;
        return makeSvg('rect', {
          x: i * width + 2, width: width - 4, y: (HEIGHT - below).toFixed(2),
          height: height.toFixed(2), class: this.series[s].key,
        });
      });
    });
  }

  // For each stretch of time the sum of every series.
  bars() {
    const bars = Array.from({length: this.numBars}, () => this.series.map(() => 0));
    for (const point of this.points) {
      const place = Math.floor(this.place(point.time) * this.numBars);
      const bar = bars[Math.min(this.numBars - 1, place)];
      this.series.forEach(({value}, s) => { bar[s] += value(point) ?? 0; });
    }
    return bars;
  }

  inWords() {
    if (!this.points.length) return `${this.title}: nothing yet`;
    const parts = this.series.map(({name, value}) => {
      const values = this.points.map(value).filter(isNumber);
      if (!values.length) return `${name} none`;
      if (this.kind === 'shares') return `${name} ${formats.count(sumOf(values))}`;
      const last = say(this.format, value(this.points.at(-1)));
      return `${name} ${last} now, ${say(this.format, Math.max(...values))} at most`;
    });
    return `${this.title} over the last 15 minutes: ${parts.join('; ')}`;
  }

  // What is under the pointer, said below the chart.
  read(event) {
    if (!this.points?.length) return;
    const box = this.svg.getBoundingClientRect();
    const left = (event.clientX - box.left) / box.width;
    if (this.kind === 'shares') {
      const index = Math.max(0, Math.min(this.numBars - 1, Math.floor(left * this.numBars)));
      const sums = this.bars()[index];
      const total = sumOf(sums);
      const parts = this.series.flatMap(({name}, s) =>
        sums[s] ? [`${name} ${formats.percent(sums[s] / total)}`] : []);
      return setText(this.reading, parts.join(' · ') || 'no prompts');
    }
    const time = this.now - this.span + left * this.span;
    const nearest = this.points.reduce((best, point) =>
      Math.abs(point.time - time) < Math.abs(best.time - time) ? point : best);
    const parts = this.series.map(({name, value}) => `${name} ${say(this.format, value(nearest))}`);
    setText(this.reading, `${clockTime(nearest.time)} · ${parts.join(' · ')}`);
  }

  drawTable() {
    if (!this.details.open || !this.points) return;
    const minutes = new Map();
    for (const point of this.points) {
      const minute = Math.floor(point.time / 60);
      minutes.set(minute, [...(minutes.get(minute) ?? []), point]);
    }
    const isShares = this.kind === 'shares';
    const shown = this.series.filter(({value}) => !isShares || this.points.some(value));
    const head = make('tr', {}, make('th', {scope: 'col'}, 'Time'),
                      ...shown.map(({name}) => make('th', {scope: 'col'}, name)));
    const rows = [...minutes].reverse().map(([minute, points]) => {
      const cells = shown.map(({value}) => {
        const values = points.map(value);
        const number = isShares ? sumOf(values.filter(isNumber)) : meanOf(values);
        return make('td', {}, say(this.format, number));
      });
      const time = clockTime(minute * 60).slice(0, 5);
      return make('tr', {}, make('th', {scope: 'row'}, time), ...cells);
    });
    this.table.replaceChildren(make('thead', {}, head), make('tbody', {}, ...rows));
  }
}
