// Requests to the server: the API key, JSON, and server-sent events.

import {session, remember} from './storage.js';

let key = session.getItem('heft.key') || '';
let ask = () => {};

/** onUnauthorized sets what is done when the server wants a key. */
export function onUnauthorized(f) { ask = f; }

export const hasKey = () => key !== '';

export function setKey(k) {
  key = k;
  remember(session, 'heft.key', k);
}

/** ServerError is an answer that is not 2xx. */
export class ServerError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** request sends a request and returns the response, which is 2xx. The path is below the page's own,
 * which a reverse proxy may have put below a prefix. */
export async function request(path, options = {}) {
  const headers = {...options.headers};
  if (key) headers.Authorization = 'Bearer ' + key;
  const r = await fetch(new URL('.' + path, document.baseURI), {...options, headers}).catch(cause => {
    throw cause.name === 'AbortError' ? cause : new Error('The server cannot be reached.', {cause});
  });
  if (r.ok) return r;
  if (r.status === 401) {
    ask();
    throw new ServerError(401, key ? 'The server does not accept this API key.' : 'This server needs an API key.');
  }
  let message = 'The server answered ' + r.status + '.';
  try { message = (await r.json()).error.message || message; } catch { /* not JSON */ }
  throw new ServerError(r.status, message);
}

export const get = async path => (await request(path)).json();

/** events yields the data of each server-sent event. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = '';
  try {
    for (;;) {
      const {done, value} = await reader.read().catch(cause => {
        throw cause.name === 'AbortError' ? cause : new Error('The connection was lost.', {cause});
      });
      if (done) return;
      held += value;
      const parts = held.split(/\r?\n\r?\n/);
      held = parts.pop();
      for (const part of parts) {
        const data = part.split(/\r?\n/).filter(l => l.startsWith('data:')).map(l => l.slice(5).replace(/^ /, ''));
        if (data.length) yield data.join('\n');
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/**
 * complete streams the answer to messages. It calls onDelta with pieces of content and reasoning, and
 * returns {usage, finish, first, seconds}: times are in seconds.
 */
export async function complete({model, messages, settings, signal, onDelta}) {
  const begin = performance.now();
  const r = await request('/v1/chat/completions', {
    method: 'POST', signal, headers: {'Content-Type': 'application/json'},
    body: JSON.stringify({...settings, model: model || undefined, messages, stream: true, stream_options: {include_usage: true}}),
  });
  let first = 0, usage = null, finish = '', whole = false;
  for await (const data of events(r)) {
    if (data === '[DONE]') { whole = true; break; }
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message);
    if (chunk.usage) usage = chunk.usage;
    for (const choice of chunk.choices) {
      first ||= performance.now();
      finish = choice.finish_reason || finish;
      const {content, reasoning_content: reasoning} = choice.delta;
      if (content || reasoning) onDelta({content: content || '', reasoning: reasoning || ''});
    }
  }
  if (!whole) throw new Error('The connection was lost.');
  return {usage, finish, first: (first - begin) / 1000, seconds: (performance.now() - first) / 1000};
}
