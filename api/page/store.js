// Conversations in the browser's local storage, each under a key of its own, so that two tabs do not
// overwrite each other's. The oldest leave when there are too many.
import {local} from './storage.js';

const PREFIX = 'heft.chat.';
export const MOST = 100;          // conversations
const MOST_LENGTH = 4_000_000;    // UTF-16 units of all of them; browsers allow about 5 million

/** all returns the conversations, the last used one first. Damaged ones are skipped. */
export function all() {
  const list = [];
  for (const key of local.keys()) {
    if (!key.startsWith(PREFIX)) continue;
    try {
      const chat = JSON.parse(local.getItem(key));
      if (chat.id && Array.isArray(chat.messages)) list.push(chat);
    } catch { /* not ours */ }
  }
  return list.sort((a, b) => b.updated - a.updated);
}

export const newID = () => crypto.getRandomValues(new Uint32Array(3)).join('');

export function fresh(like) {
  return {id: newID(), title: '', created: Date.now(), updated: Date.now(),
    model: like?.model || '', system: like?.system || '', settings: {...like?.settings}, messages: []};
}

/** keep saves a conversation, and removes the oldest ones that have no room beside it. It returns false if the conversation
 * is too large for the browser; the others then stay, and so does what was saved of it before. */
export function keep(chat) {
  const text = JSON.stringify(chat);
  if (text.length > MOST_LENGTH) return false;
  const others = all().filter(c => c.id !== chat.id);
  let length = text.length + others.reduce((n, c) => n + JSON.stringify(c).length, 0);
  while (others.length && (others.length >= MOST || length > MOST_LENGTH)) length -= drop(others);
  for (;;) {
    try {
      local.setItem(PREFIX + chat.id, text);
      return true;
    } catch {
      if (!others.length) return false; // it is larger than the browser allows
      drop(others);
    }
  }
}

function drop(list) {
  const oldest = list.pop();
  remove(oldest.id);
  return JSON.stringify(oldest).length;
}

export function remove(id) { local.removeItem(PREFIX + id); }

/** onOtherTab calls f(id) when another tab has changed a conversation, or all. */
export function onOtherTab(f) {
  window.addEventListener('storage', e => { if (!e.key || e.key.startsWith(PREFIX)) f(e.key?.slice(PREFIX.length)); });
}

/** asMarkdown writes a conversation for reading. */
export function asMarkdown(chat) {
  const parts = ['# ' + (chat.title || 'Conversation')];
  if (chat.model) parts.push('Model: ' + chat.model);
  if (chat.system) parts.push('## System\n\n' + chat.system);
  for (const m of chat.messages) {
    parts.push(m.role === 'user' ? '## User' : '## Assistant');
    if (m.reasoning) parts.push('<details><summary>Reasoning</summary>\n\n' + m.reasoning + '\n\n</details>');
    if (m.content) parts.push(m.content);
  }
  return parts.join('\n\n') + '\n';
}

/** asJSON writes a conversation with what /v1/chat/completions takes. */
export function asJSON(chat) {
  const messages = chat.messages.map(({role, content, reasoning}) => ({role, content, ...(reasoning && {reasoning_content: reasoning})}));
  if (chat.system) messages.unshift({role: 'system', content: chat.system});
  return JSON.stringify({title: chat.title, created: new Date(chat.created).toISOString(), model: chat.model, ...chat.settings, messages}, null, 2) + '\n';
}
