// Markdown as models write it, made of elements and text nodes: no HTML of a message is ever read.
// Knows headings, paragraphs, lists, quotes, rules, code, bold, italic, and links.

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const RULE = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(?:\s+|$)/;
const MAX_DEPTH = 6;  // of lists and quotes in each other, and of emphasis: text may be hostile

// The elements of a text. Headings begin below the page's own, without gaps between their ranks.
function markdown(text) {
  const rank = {last: 2};
  return blocks(text.split('\n'), rank, 0);
}

function blocks(lines, rank, depth) {
  const made = [];
  const at = {line: 0};
  while (at.line < lines.length) {
    const line = lines[at.line];
    if (!line.trim()) ++at.line;
    else made.push(block(lines, at, rank, depth));
  }
  return made;
}

function block(lines, at, rank, depth) {
  const line = lines[at.line];
  let found;
  if ((found = FENCE.exec(line))) return codeBlock(lines, at, found);
  if ((found = HEADING.exec(line))) {
    ++at.line;
    rank.last = Math.min(found[1].length + 2, rank.last + 1, 6);
    return inline(make(`h${rank.last}`), found[2]);
  }
  if (RULE.test(line)) {
    ++at.line;
    return make('hr');
  }
  if (depth < MAX_DEPTH && QUOTE.test(line)) {
    const quoted = [];
    while (at.line < lines.length && QUOTE.test(lines[at.line])) {
      quoted.push(lines[at.line++].replace(QUOTE, ''));
    }
    return make('blockquote', {}, ...blocks(quoted, rank, depth + 1));
  }
  if (depth < MAX_DEPTH && ITEM.test(line)) return list(lines, at, rank, depth);
  return paragraph(lines, at);
}

const beginsBlock = (line) => !line.trim() || FENCE.test(line) || HEADING.test(line) ||
                              RULE.test(line) || QUOTE.test(line) || ITEM.test(line);

function paragraph(lines, at) {
  const parts = [lines[at.line++].trim()];
  while (at.line < lines.length && !beginsBlock(lines[at.line])) {
    parts.push(lines[at.line++].trim());
  }
  return inline(make('p'), parts.join('\n'));
}

// Up to its closing fence, or to the end while the message still comes.
function codeBlock(lines, at, [, fence, language]) {
  const code = [];
  while (++at.line < lines.length && !lines[at.line].trim().startsWith(fence)) {
    code.push(lines[at.line]);
  }
  ++at.line;
  return make('pre', {tabindex: '0', 'aria-label': language ? `Code, ${language}` : 'Code',
                      role: 'group'}, make('code', {}, code.join('\n')));
}

// What is indented deeper than an item's mark belongs to the item.
function list(lines, at, rank, depth) {
  const [, , firstMark] = ITEM.exec(lines[at.line]);
  const isNumbered = /\d/.test(firstMark);
  const start = isNumbered ? parseInt(firstMark, 10) : 1;
  const element = make(isNumbered ? 'ol' : 'ul', {start: start !== 1 && start});
  const outer = indentOf(lines[at.line]);
  while (at.line < lines.length) {
    const item = ITEM.exec(lines[at.line]);
    if (!item || indentOf(lines[at.line]) > outer + 1 || indentOf(lines[at.line]) < outer ||
        /\d/.test(item[2]) !== isNumbered || RULE.test(lines[at.line])) break;
    const inside = [lines[at.line++].slice(item[0].length)];
    const margin = new RegExp(`^(?:\\t| {0,${item[0].length}})`);
    while (at.line < lines.length && belongsToItem(lines, at.line, outer)) {
      inside.push(lines[at.line++].replace(margin, ''));
    }
    element.append(listItem(inside, rank, depth));
    while (at.line < lines.length && !lines[at.line].trim() && isItem(lines, at.line + 1, outer)) {
      ++at.line;  // a blank line between two items
    }
  }
  return element;
}

const indentOf = (line) => line.length - line.trimStart().length;
const isItem = (lines, index, outer) =>
  index < lines.length && ITEM.test(lines[index]) && indentOf(lines[index]) >= outer &&
  indentOf(lines[index]) <= outer + 1;

function belongsToItem(lines, index, outer) {
  const line = lines[index];
  if (line.trim()) return indentOf(line) > outer + 1 || !beginsBlock(line);
  const next = lines[index + 1];
  return next !== undefined && next.trim() !== '' && indentOf(next) > outer + 1;
}

// An item of one paragraph is that text alone.
function listItem(lines, rank, depth) {
  const inside = blocks(lines, rank, depth + 1);
  if (inside[0]?.tagName === 'P') inside.splice(0, 1, ...inside[0].childNodes);
  return make('li', {}, ...inside);
}

// Appends text with its emphasis, code and links to `parent`, and returns that.
function inline(parent, text, depth = 0) {
  let plain = '';
  const flush = () => {
    if (plain) parent.append(plain);
    plain = '';
  };
  for (let i = 0; i < text.length;) {
    const found = depth < MAX_DEPTH ? span(text, i, depth) : null;
    if (!found) {
      plain += text[i++];
      continue;
    }
    flush();
    parent.append(found.node);
    i = found.end;
  }
  flush();
  return parent;
}

// What begins at `i` and is more than a character: {node, end}, or null.
function span(text, i, depth) {
  switch (text[i]) {
    case '\\':
      return /[!-/:-@[-`{-~]/.test(text[i + 1] ?? '') ? {node: text[i + 1], end: i + 2} : null;
    case '`': return codeSpan(text, i);
    case '*':
    case '_': return emphasis(text, i, depth);
    case '!': return text[i + 1] === '[' ? link(text, i + 1) : null;
    case '[': return link(text, i);
    case 'h': return bareLink(text, i);
    default: return null;
  }
}

function codeSpan(text, i) {
  const mark = /^`+/.exec(text.slice(i))[0];
  const end = text.indexOf(mark, i + mark.length);
  if (end < 0) return null;
  return {node: make('code', {}, text.slice(i + mark.length, end)), end: end + mark.length};
}

function emphasis(text, i, depth) {
  const mark = /^(?:\*{1,3}|_{1,3})/.exec(text.slice(i, i + 3))[0];
  const begin = i + mark.length;
  const isWord = (character) => /[\p{L}\p{N}]/u.test(character ?? '');
  if (!text[begin] || /\s/.test(text[begin])) return null;
  if (mark[0] === '_' && isWord(text[i - 1])) return null;  // snake_case is no emphasis
  for (let end = text.indexOf(mark, begin + 1); end > 0; end = text.indexOf(mark, end + 1)) {
    if (/\s/.test(text[end - 1]) || text[end - 1] === '\\') continue;
    if (mark[0] === '_' && isWord(text[end + mark.length])) continue;
    if (mark.length === 1 && text[end + 1] === mark) {
      ++end;  // a double mark inside
      continue;
    }
    const inside = make(mark.length === 1 ? 'em' : 'strong');
    inline(inside, text.slice(begin, end), depth + 1);
    return {node: mark.length === 3 ? make('em', {}, inside) : inside, end: end + mark.length};
  }
  return null;
}

// Another page, in a tab that knows nothing of this one. Only the web's own addresses become links.
function anchor(address, content) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return null;
  }
  if (!['https:', 'http:'].includes(url.protocol)) return null;
  return make('a', {href: url.href, target: '_blank', rel: 'noopener noreferrer nofollow'},
              ...content);
}

// Images are links too: the page fetches nothing that a message names.
function link(text, i) {
  const middle = text.indexOf(']', i);
  const end = middle < 0 || text[middle + 1] !== '(' ? -1 : text.indexOf(')', middle);
  if (end < 0) return null;
  const address = text.slice(middle + 2, end).trim().split(/\s/)[0];
  const label = text.slice(i + 1, middle) || address;
  const node = anchor(address, inline(make('span'), label, MAX_DEPTH - 1).childNodes);
  return node && {node, end: end + 1};
}

function bareLink(text, i) {
  const found = /^https?:\/\/[^\s<>"'`]+[^\s<>"'`.,;:!?)\]*_]/.exec(text.slice(i, i + 2000));
  const node = found && anchor(found[0], [found[0]]);
  return node && {node, end: i + found[0].length};
}
