// A prompt, token by token: what was found in the cache and what had to be computed.

// A token's text; line ends are seen, and bytes that are no text alone are said as such.
function pieceText(piece) {
  if (Array.isArray(piece)) {
    return piece.map((byte) => `⟨${byte.toString(16).padStart(2, '0')}⟩`).join('');
  }
  return piece.replaceAll('\n', '↵\n');
}

// The tokens of a conversation as the server reads it, or none where they are not `count`: then
// this is not what was computed.
async function tokensOf(messages, count) {
  const {prompt} = await ask('POST', 'apply-template', {body: {messages}});
  for (const add_special of [false, true]) {
    const body = {content: prompt, add_special, parse_special: true, with_pieces: true};
    const {tokens: list} = await ask('POST', 'tokenize', {body});
    if (list.length === count) return list;
  }
  return null;
}

// What opens under a reply. `messages` are those that its request had.
function tokenView(messages, {prompt, cached}) {
  const place = make('div', {class: 'tokens', tabindex: '0', role: 'group',
                             'aria-label': `The prompt's tokens, the first ${cached} reused`});
  const note = make('p', {class: 'small'});
  const fill = async () => {
    if (place.hasChildNodes()) return;
    try {
      const list = await tokensOf(messages, prompt);
      if (!list) return setText(note, 'The server counts other tokens than it used: not shown.');
      place.append(...list.map(({piece}, i) =>
        make('span', {class: i < cached ? 'reused' : 'computed'}, pieceText(piece))));
      // Where the one ends and the other begins is what people look for.
      const border = place.querySelector('.computed');
      if (border) place.scrollTop = border.offsetTop - place.offsetTop - place.clientHeight / 2;
      note.replaceChildren(make('i', {class: 'reused'}), ` reused, ${formats.count(cached)}   `,
                           make('i', {class: 'computed'}),
                           ` computed, ${formats.count(prompt - cached)}`);
    } catch (error) {
      setText(note, error.message);
    }
  };
  const details = make('details', {class: 'token-view'}, make('summary', {}, 'Show its tokens'),
                       note, place);
  details.addEventListener('toggle', () => details.open && fill());
  return details;
}
