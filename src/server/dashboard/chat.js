// The chat: a conversation that streams, can be stopped and edited, and says of every message how
// much of it the last request found in the cache.

const CHATS_NAME = 'kvern-chats';
const MAX_CHATS = 20;
const DRAW_MS = 60;  // a stream is drawn no more often

const chatRequests = new Set();  // ids of those that this page sent

// The data of a stream's events, parsed; comments and "[DONE]" are left out.
async function* eventsOf(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const events = (rest + value).split('\n\n');
    rest = events.pop();
    for (const event of events) {
      if (event.startsWith('data: {')) yield JSON.parse(event.slice('data: '.length));
    }
  }
}

async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Only pages of this machine and those of TLS have a clipboard.
  const area = make('textarea', {class: 'hidden'});
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand('copy');
  area.remove();
}

// Where each message ends in the prompt, in tokens, tells how much of it was found: what is found
// is always the first part of a prompt.
function settleReuse(messages, {prompt, cached}) {
  messages.at(-1).end = prompt;
  let start = 0;
  for (const message of messages) {
    const end = isNumber(message.end) ? Math.min(message.end, prompt) : null;
    message.reuse = end === null || start === null || end <= start ? null : {
      reused: Math.max(0, Math.min(cached, end) - start), total: end - start,
    };
    start = end;
  }
}

class Chat {
  constructor() {
    this.chats = this.load();
    this.messages = this.chats[0]?.messages ?? [];
    this.abort = null;
    this.draft = byId('draft');
    byId('composer').addEventListener('submit', (event) => {
      event.preventDefault();
      this.submit();
    });
    this.draft.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.submit();
    });
    byId('stop').addEventListener('click', () => this.abort?.abort());
    byId('new-chat').addEventListener('click', () => this.begin([]));
    byId('earlier').addEventListener('change', ({target}) => {
      const chosen = this.chats[Number(target.value)];
      if (chosen) this.begin(chosen.messages);
    });
    this.show();
  }

  // Of this tab, newest first; the first is the one that is open.
  load() {
    try {
      return JSON.parse(sessionStorage.getItem(CHATS_NAME)) ?? [];
    } catch {
      return [];
    }
  }

  save() {
    this.chats[0] = {messages: this.messages};
    this.chats = this.chats.filter(({messages}, i) => i === 0 || messages.length);
    this.chats.length = Math.min(this.chats.length, MAX_CHATS);
    try {
      sessionStorage.setItem(CHATS_NAME, JSON.stringify(this.chats));
    } catch {
      // The tab's store is full: then only this page remembers.
    }
    this.showEarlier();
  }

  // Opens a conversation; the one before it joins the earlier ones.
  begin(messages) {
    this.abort?.abort();
    this.chats = this.chats.filter((chat) => chat.messages !== messages);
    this.messages = messages;
    this.chats.unshift({messages});
    this.save();
    this.say('');
    this.show();
    this.draft.focus();
  }

  showEarlier() {
    const earlier = this.chats.slice(1);
    const select = byId('earlier');
    select.hidden = earlier.length === 0;
    select.replaceChildren(make('option', {value: ''}, 'Earlier chats'), ...earlier.map(
      ({messages}, i) => make('option', {value: i + 1}, titleOf(messages))));
  }

  show() {
    this.views = this.messages.map((message, i) => new MessageView(this, message, i));
    byId('messages').replaceChildren(...this.views.map(({element}) => element));
    byId('no-messages').hidden = this.messages.length > 0;
    this.showEarlier();
    this.scroll(true);
  }

  // Follows what is written, unless the reader has scrolled up.
  scroll(must = false) {
    const log = byId('log');
    if (must || log.scrollHeight - log.scrollTop - log.clientHeight < 120) {
      log.scrollTop = log.scrollHeight;
    }
  }

  say(text, isProblem = false) {
    const status = byId('chat-status');
    setText(status, text);
    status.classList.toggle('problem', isProblem);
  }

  submit() {
    const text = this.draft.value.trim();
    if (!text || this.abort) return;
    this.draft.value = '';
    this.send(text);
  }

  // Asks again from a message on; the conversation as it was joins the earlier ones.
  resend(index, text) {
    if (this.abort) return;
    this.chats.splice(1, 0, {messages: structuredClone(this.messages)});
    this.messages.length = index;
    this.send(text, true);
  }

  body(asked) {
    const number = (id) => byId(id).value === '' ? undefined : byId(id).valueAsNumber;
    return {
      messages: asked, stream: true, stream_options: {include_usage: true},
      max_tokens: number('max-tokens'), temperature: number('temperature'),
    };
  }

  // What the server is given for the reply at `index`: what is before it, without what this page
  // adds to that.
  asked(index) {
    const {system} = this.messages[index];
    return [...(system ? [{role: 'system', content: system}] : []),
            ...this.messages.slice(0, index).map(({role, content}) => ({role, content}))];
  }

  async send(text, isEdit = false) {
    const {messages} = this;
    messages.push({role: 'user', content: text});
    const reply = {role: 'assistant', content: '', isEdit, system: byId('system').value.trim()};
    const index = messages.push(reply) - 1;
    const abort = new AbortController();
    this.setBusy(abort);
    this.show();
    this.say('Waiting for the first token…');
    try {
      await this.stream(reply, this.asked(index), abort.signal);
      this.say(reply.isCut ? 'The reply reached its length.' : '');
    } catch (error) {
      const isStopped = error.name === 'AbortError';
      if (isStopped) await this.askUsage(reply);
      this.say(isStopped ? 'Stopped.'
        : error instanceof TypeError ? 'The connection was cut.' : error.message, !isStopped);
      // What got no reply goes back to where it was written.
      if (!reply.content) messages.splice(index - 1, 2);
      if (!reply.content && this.messages === messages) this.draft.value ||= text;
    }
    if (messages[index] === reply && reply.usage) {
      settleReuse(messages.slice(0, index), reply.usage);
    }
    if (this.abort === abort) this.setBusy(null);
    this.save();
    if (this.messages === messages) this.show();
  }

  // Fills `reply` as it comes.
  async stream(reply, asked, signal) {
    const began = performance.now();
    const stream = await request('POST', 'v1/chat/completions', {body: this.body(asked), signal});
    reply.id = stream.headers.get('x-request-id');
    chatRequests.add(reply.id);
    for await (const event of eventsOf(stream)) this.take(reply, event, performance.now() - began);
  }

  take(reply, event, passedMs) {
    if (event.error) throw new Refused(500, event.error.message);
    const choice = event.choices?.[0];
    if (choice?.delta?.content) {
      reply.firstMs ??= passedMs;
      reply.content += choice.delta.content;
      this.say('Writing…');
      this.drawSoon(reply);
    }
    if (choice?.finish_reason === 'length') reply.isCut = true;
    if (event.usage) {
      this.setUsage(reply, event.usage.prompt_tokens,
                    event.usage.prompt_tokens_details?.cached_tokens ?? 0,
                    event.usage.completion_tokens);
    }
  }

  setUsage(reply, prompt, cached, completion) {
    reply.usage = {prompt, cached, completion};
    reply.end = prompt + completion;
  }

  // A stream that was stopped says no usage, but the server's list of requests does.
  async askUsage(reply) {
    if (!reply.id) return;
    try {
      const told = await ask('GET', `requests/${encodeURIComponent(reply.id)}`);
      this.setUsage(reply, told.prompt_tokens, told.found_tokens, told.completion_tokens);
    } catch {
      // A key that may not inspect: the message goes without it.
    }
  }

  drawSoon(reply) {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      this.views.at(-1)?.drawBody();
      this.scroll();
    }, reply.content ? DRAW_MS : 0);
  }

  setBusy(abort) {
    this.abort = abort;
    byId('send').hidden = abort !== null;
    byId('stop').hidden = abort === null;
    byId('log').setAttribute('aria-busy', String(abort !== null));
    byId('chat').classList.toggle('busy', abort !== null);
  }
}

function titleOf(messages) {
  const text = messages[0]?.content ?? '';
  return `${text.slice(0, 40)}${text.length > 40 ? '…' : ''} (${messages.length})`;
}
