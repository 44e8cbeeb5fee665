// The conversation: its turns on the page, and the answer that streams into it.
import {$, el, icon, button, copy, say, count} from './dom.js';
import {complete} from './server.js';
import {render} from './markdown.js';
import * as store from './store.js';

export let chat = store.fresh();
let running = null; // {chat, message, controller}
let hooks = {changed() {}, ended() {}, model: () => '', context: () => 0};

export function use(h) { hooks = {...hooks, ...h}; }

export const isRunning = id => running !== null && (!id || running.chat.id === id);

/** open shows a conversation. An answer that streams into another one goes on. */
export function open(other) {
  chat = running?.chat.id === other.id ? running.chat : other;
  $('unkept').hidden = true;
  draw();
}

function save() {
  chat.updated = Date.now();
  keep(chat);
  hooks.changed();
}

/** keep saves a conversation, and says so if it is too large. */
export function keep(c) {
  const kept = store.keep(c);
  if (c === chat) $('unkept').hidden = kept;
}

// --- turns

const log = () => $('log');

export function draw() {
  log().replaceChildren(...(chat.messages.length ? chat.messages.map(turn) : [welcome()]));
  $('title').textContent = chat.title || 'New conversation';
  $('exports').hidden = !chat.messages.length;
  buttons();
  showUsed();
  scroll(true);
}

function welcome() {
  const ask = text => el('button', {type: 'button', className: 'suggestion', click: () => { $('text').value = text; $('text').dispatchEvent(new Event('input')); $('text').focus(); }}, text);
  return el('div', {className: 'welcome'}, el('p', {className: 'lead'}, 'What would you like to know?'),
    el('div', {className: 'suggestions'}, ask('Explain how a large model runs on a machine with less memory.'), ask('Compare three sorting algorithms in a table.'),
      ask('Write a Go function that reverses a string, with a test.')));
}

/** turn makes the element of a message. */
function turn(message, i) {
  const mine = message.role === 'user';
  const e = el('article', {className: 'turn ' + message.role, 'aria-label': mine ? 'You' : 'Assistant'});
  if (mine) e.append(el('div', {className: 'bubble'}, message.content), actions(message, i, e));
  else fill(e, message, i);
  return e;
}

function actions(message, i, e) {
  const row = el('div', {className: 'actions'});
  if (message.content) row.append(button('copy', 'Copy message', event => copy(message.content, event.currentTarget)));
  if (message.role === 'user') row.append(button('edit', 'Edit message', () => edit(message, i, e)));
  else row.append(button('again', 'Regenerate answer', () => again(i)));
  if (message.note) row.append(el('span', {className: 'note'}, message.note));
  return row;
}

/** fill brings the element of an answer up to date. While it streams only what has changed is replaced. */
function fill(e, message, i) {
  const streams = running?.message === message;
  if (message.reasoning) {
    let fold = e.querySelector(':scope > details');
    if (!fold) e.prepend(fold = el('details', {className: 'thought'}, el('summary', {}), el('div', {className: 'prose'})));
    fold.querySelector('summary').textContent = streams && !message.content ? 'Thinking…' : 'Thought';
    patch(fold.lastElementChild, render(message.reasoning));
  }
  let body = e.querySelector(':scope > .prose');
  if (!body) e.append(body = el('div', {className: 'prose'}));
  patch(body, render(message.content));
  e.classList.toggle('busy', streams);
  e.setAttribute('aria-busy', String(streams));
  e.querySelectorAll(':scope > .actions, :scope > .error').forEach(x => x.remove());
  if (message.error) e.append(el('p', {className: 'error', role: 'alert'}, message.error));
  if (!streams) e.append(actions(message, i, e));
}

/** patch gives e the children of another node. Elements that are there already stay, with the selection, the focus and
 * the scroll position in them. */
function patch(e, other) {
  const next = [...other.childNodes];
  next.forEach((n, i) => {
    const old = e.childNodes[i];
    if (!old) e.append(n);
    else if (old.isEqualNode(n)) return;
    else if (old.nodeType === Node.TEXT_NODE && n.nodeType === Node.TEXT_NODE) {
      if (n.data.startsWith(old.data)) old.appendData(n.data.slice(old.length));
      else old.data = n.data;
    } else if (old.nodeType === Node.ELEMENT_NODE && old.cloneNode().isEqualNode(n.cloneNode())) patch(old, n);
    else old.replaceWith(n);
  });
  while (e.childNodes.length > next.length) e.lastChild.remove();
}

/** scroll follows the end, unless the reader has scrolled up. */
function scroll(always) {
  const l = log();
  if (always || l.scrollHeight - l.scrollTop - l.clientHeight < 120) l.scrollTop = l.scrollHeight;
}

function edit(message, i, e) {
  if (isRunning()) return;
  const field = el('textarea', {className: 'edit', value: message.content, 'aria-label': 'Edit message', rows: Math.min(12, message.content.split('\n').length + 1)});
  const done = () => { draw(); $('text').focus(); };
  const submit = () => {
    const content = field.value.trim();
    if (!content) return;
    chat.messages.length = i;
    send(content);
    $('text').focus();
  };
  field.addEventListener('keydown', event => {
    if (event.key === 'Escape') { event.stopPropagation(); done(); }
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); submit(); }
  });
  e.replaceChildren(field, el('div', {className: 'row'}, el('button', {type: 'button', className: 'quiet', click: done}, 'Cancel'),
    el('button', {type: 'button', click: submit}, 'Send')));
  e.classList.add('editing');
  field.focus();
}

function again(i) {
  if (isRunning()) return;
  chat.messages.length = i;
  answer();
}

// --- asking

export function stop() { running?.controller.abort(); }

/** follow shows what another tab has made of the conversation. One that is answered in both tabs becomes two. */
export function follow(id) {
  if (isRunning(id)) running.chat.id = store.newID();
  const stored = id === chat.id && store.all().find(c => c.id === id);
  if (stored && stored.updated > chat.updated) open(stored);
}

/** leave keeps the part of an answer that streams while the page is closed. */
export function leave() {
  if (!running || running.deleted) return;
  running.message.note = 'stopped';
  store.keep(running.chat);
}

function buttons() {
  $('send').hidden = isRunning();
  $('stop').hidden = !isRunning();
}

/** send adds a message and has it answered. */
export function send(content) {
  if (isRunning()) return;
  chat.messages.push({role: 'user', content});
  chat.title ||= content.replace(/\s+/g, ' ').slice(0, 60);
  answer();
}

/** answer has the model answer the conversation as it is. */
async function answer() {
  const message = {role: 'assistant', content: '', reasoning: ''};
  const mine = running = {chat, message, controller: new AbortController()};
  const messages = mine.chat.messages.filter(m => m.content).map(({role, content}) => ({role, content}));
  if (mine.chat.system) messages.unshift({role: 'system', content: mine.chat.system});
  mine.chat.model = hooks.model();
  mine.chat.messages.push(message);
  save();
  draw();
  say('Answering');
  const show = painter(mine);
  try {
    const end = await complete({model: mine.chat.model, messages, settings: mine.chat.settings, signal: mine.controller.signal, onDelta: d => {
      message.content += d.content;
      message.reasoning += d.reasoning;
      show();
    }});
    message.note = note(end);
    mine.chat.used = end.usage ? end.usage.prompt_tokens + end.usage.completion_tokens : 0;
  } catch (error) {
    if (error.name === 'AbortError') message.note = 'stopped';
    else message.error = error.message || String(error);
  }
  finish(mine);
}

/** painter draws the answer as it grows, less often where that takes long. */
function painter(mine) {
  let due = 0, waiting = false;
  const paint = () => {
    waiting = false;
    if (running !== mine || chat !== mine.chat) return;
    const begin = performance.now();
    fill(log().lastElementChild, mine.message, chat.messages.length - 1);
    scroll();
    due = performance.now() + 4 * (performance.now() - begin);
  };
  return () => {
    if (waiting) return;
    waiting = true;
    setTimeout(paint, Math.max(30, due - performance.now()));
  };
}

function finish(mine) {
  const {message} = mine;
  running = null;
  if (!message.content && !message.reasoning && !message.error && !message.note) message.note = 'no answer';
  mine.chat.updated = Date.now();
  if (!mine.deleted) keep(mine.chat);
  hooks.changed();
  if (chat === mine.chat) {
    fill(log().lastElementChild, message, chat.messages.length - 1); // in place: the reader may be in the middle of it
    scroll();
    showUsed();
  }
  buttons();
  if (!message.error) say(message.note === 'stopped' ? 'Stopped' : 'Answer: ' + (log().lastElementChild?.querySelector(':scope > .prose')?.textContent || '').slice(0, 1000));
  hooks.ended();
}

function note({usage, finish, first, seconds}) {
  if (!usage) return '';
  const parts = [count(usage.completion_tokens) + (usage.completion_tokens === 1 ? ' token' : ' tokens')];
  if (usage.completion_tokens > 1 && seconds > 0.05) parts.push(((usage.completion_tokens - 1) / seconds).toFixed(1) + ' per second');
  parts.push('first after ' + first.toFixed(first < 10 ? 2 : 0) + ' s');
  if (finish === 'length') parts.push('cut at the limit of tokens');
  return parts.join(' · ');
}

function showUsed() {
  const context = hooks.context();
  $('used').textContent = chat.used && context ? count(chat.used) + ' of ' + count(context) + ' tokens used' : '';
}

// --- the list of conversations

export function drawList(openChat) {
  const item = c => {
    const title = c.title || 'Conversation', current = c.id === chat.id;
    return el('li', {className: current ? 'current' : ''},
      el('button', {type: 'button', className: 'title', 'aria-current': current ? 'true' : null, title, click: () => openChat(c)}, title),
      el('button', {type: 'button', className: 'quiet small', 'aria-label': 'Delete ' + title, title: 'Delete', click: () => forget(c, openChat)}, icon('trash')));
  };
  $('list').replaceChildren(...store.all().map(item));
}

function forget(c, openChat) {
  if (isRunning(c.id)) {
    running.deleted = true;
    stop();
  }
  const next = c.id === chat.id ? store.fresh(chat) : null;
  store.remove(c.id);
  if (next) openChat(next);
  else hooks.changed();
  $('new').focus();
}
