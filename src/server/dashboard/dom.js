// Building the page, and how numbers are said. What comes from the server becomes text nodes or
// attributes that cannot run: nothing here reads text as HTML.

const byId = (id) => document.getElementById(id);

// An element with attributes; `on…` are listeners. Absent children and attributes are left out.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? '' : value);
    }
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const SVG = 'http://www.w3.org/2000/svg';

function makeSvg(tag, attributes = {}) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

// Only where it differs, so that a reader's selection and the focus stay.
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const NONE = '–';
const isNumber = (value) => typeof value === 'number' && Number.isFinite(value);

// Each takes a number; what is none is said as a dash.
const formats = {
  count: (value) => Math.round(value).toLocaleString('en'),
  rate: (value) => (value > 0 && value < 9.95 ? value.toFixed(1) : formats.count(value)),
  percent: (value) => `${Math.round(value * 100)} %`,
  bytes(value) {
    const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
    let unit = 0;
    for (; value >= 1024 && unit < units.length - 1; ++unit) value /= 1024;
    return `${value.toFixed(unit > 0 && value < 99.95 ? 1 : 0)} ${units[unit]}`;
  },
  ms(value) {
    if (value < 9.95) return `${value.toFixed(1)} ms`;
    if (value < 999.5) return `${Math.round(value)} ms`;
    if (value < 59_950) return `${(value / 1000).toFixed(1)} s`;
    return formats.duration(value / 1000);
  },
  duration(seconds) {
    const s = Math.round(seconds);
    if (s < 60) return `${s} s`;
    if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
    if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
    return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
  },
  // The same in one unit.
  age: (seconds) => formats.duration(Math.max(0, seconds)).split(' ').slice(0, 2).join(' '),
};

const say = (format, value) => (isNumber(value) ? formats[format](value) : NONE);
const tokens = (number) => `${say('count', number)} ${number === 1 ? 'token' : 'tokens'}`;

const clockTime = (unixSeconds) => new Date(unixSeconds * 1000).toLocaleTimeString('en-GB');

// "POST /v1/chat/completions" and the like, by what people call it.
function endpointName(path) {
  const names = {
    '/v1/chat/completions': 'Chat',
    '/v1/completions': 'Completion',
    '/v1/messages': 'Messages',
    '/v1/responses': 'Response',
    '/completion': 'Completion',
  };
  return names[path] ?? path ?? 'Request';
}

// Where a prompt's tokens were found, and why they were not, in the order of charts and lists.
const PLACES = [
  ['ram', 'Found in memory'],
  ['in_flight', 'Waited for another request'],
  ['partial', 'Copied out of a block'],
  ['tier', 'Loaded from a tier'],
];
const REASONS = [
  ['evicted', 'Evicted since'],
  ['other_token', 'Other text than cached'],
  ['never_seen', 'Never seen'],
  ['logits_needed', 'Last token, for its answer'],
  ['other_namespace', 'Belongs to others'],
  ['group_not_held', 'Window not held'],
  ['tier_failed', 'Tier failed'],
  ['policy_off', 'Cache not used'],
  ['unknown', 'Not known any more'],
];
const reasonName = (reason) => REASONS.find(([key]) => key === reason)?.[1] ?? reason;
