// One message of the chat on the page.

class MessageView {
  constructor(chat, message, index) {
    Object.assign(this, {chat, message, index});
    const isUser = message.role === 'user';
    this.body = make('div', {class: 'body'});
    this.copied = make('button', {
      type: 'button', class: 'link', onclick: () => this.copy(),
    }, 'Copy');
    this.edit = isUser && make('button', {
      type: 'button', class: 'link edit', onclick: () => this.beginEdit(),
    }, 'Edit');
    this.element = make('li', {class: `message ${message.role}`},
      make('div', {class: 'of'}, make('b', {}, isUser ? 'You' : 'Model'),
           make('span', {class: 'actions'}, this.edit || null, this.copied), this.reuse()),
      this.body, this.usage());
    this.drawBody();
  }

  drawBody() {
    const {role, content} = this.message;
    if (role === 'user') this.body.replaceChildren(make('p', {class: 'plain'}, content));
    else this.body.replaceChildren(...markdown(content));
  }

  // How much of this message the last request found.
  reuse() {
    if (!this.message.reuse) return null;
    const {reused, total} = this.message.reuse;
    const part = make('span');
    part.style.width = `${(100 * reused) / total}%`;
    return make('span', {class: 'reuse', 'data-reused': reused, 'data-total': total},
                make('span', {class: 'track', 'aria-hidden': 'true'}, part),
                reused === total ? `all ${tokens(total)} reused`
                                 : `${formats.count(reused)} of ${tokens(total)} reused`);
  }

  // Of a reply: what its whole prompt found, and how long that took.
  usage() {
    const {usage, isEdit, firstMs} = this.message;
    if (!usage) return null;
    const {prompt, cached} = usage;
    const words = isEdit
      ? `Kept prefix: ${formats.count(cached)} of ${tokens(prompt)} were still there after your ` +
        `edit, ${formats.count(prompt - cached)} computed`
      : `${formats.count(cached)} of ${tokens(prompt)} of its prompt reused, ` +
        `${formats.count(prompt - cached)} computed`;
    const first = isNumber(firstMs) ? `; first token after ${formats.ms(firstMs)}` : '';
    return make('div', {class: 'usage', 'data-prompt': prompt, 'data-cached': cached},
                make('p', {}, `${words}${first}.`),
                tokenView(this.chat.asked(this.index), usage));
  }

  async copy() {
    try {
      await copyText(this.message.content);
      setText(this.copied, 'Copied');
    } catch {
      setText(this.copied, 'The browser forbids it');
    }
    setTimeout(() => setText(this.copied, 'Copy'), 1500);
  }

  beginEdit() {
    if (this.chat.abort) return;
    const area = make('textarea', {rows: '3', 'aria-label': 'Your message, to be sent again'});
    area.value = this.message.content;
    const end = () => {
      this.drawBody();
      this.edit.hidden = false;
      this.edit.focus();
    };
    const again = () => area.value.trim() && this.chat.resend(this.index, area.value.trim());
    area.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') end();
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      again();
    });
    this.edit.hidden = true;
    this.body.replaceChildren(area, make('div', {class: 'row'},
      make('button', {type: 'button', class: 'primary', onclick: again}, 'Send again'),
      make('button', {type: 'button', onclick: end}, 'Keep as it was')));
    area.focus();
  }
}
