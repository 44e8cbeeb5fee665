'use strict';
const $ = id => document.getElementById(id);
const log = $('log'), text = $('text');
let key = sessionStorage.getItem('key') || '', chosen = sessionStorage.getItem('model') || '', messages = [], running = null, noChat = {};

const headers = () => key ? {Authorization: 'Bearer ' + key} : {};

// get fetches JSON. A 401 asks for a key.
async function get(path) {
  const r = await fetch(path, {headers: headers()});
  if (r.status === 401) askKey();
  if (!r.ok && path !== '/health') throw new Error(path + ': ' + r.status);
  return r.json();
}

function askKey() {
  $('keyform').hidden = false;
}

$('keyform').onsubmit = e => {
  e.preventDefault();
  key = $('key').value.trim();
  sessionStorage.setItem('key', key);
  $('keyform').hidden = true;
  showModel();
  text.focus();
};

// --- the model and where it lives

function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return (i && n < 100 ? n.toFixed(1) : Math.round(n)) + ' ' + units[i];
}

const tier = d => d === 'cpu' || d === 'disk' ? d : 'gpu';
const place = d => d === 'cpu' ? 'Memory' : d === 'disk' ? 'Disk' : d === 'mps' ? 'GPU' : 'GPU ' + d;

function make(tag, name, content) {
  const e = document.createElement(tag);
  if (name) e.className = name;
  if (content !== undefined) e.textContent = content;
  return e;
}

async function showModel() {
  try {
    const [list, plan] = await Promise.all([get('/v1/models'), get('/plan')]);
    const m = list.data[0];
    $('model').replaceChildren(...list.data.map(m => make('option', '', m.id)));
    $('model').value = list.data.some(m => m.id === chosen) ? chosen : m.id;
    $('model').hidden = false;
    $('model').disabled = list.data.length < 2;
    $('about').textContent = 'Context of ' + m.max_model_len.toLocaleString() + ' tokens.';
    noChat = Object.fromEntries(list.data.filter(m => m.no_chat).map(m => [m.id, m.no_chat]));
    showChat();
    showPlan(plan);
  } catch (e) {
    $('about').textContent = $('keyform').hidden ? String(e.message || e) : key ? 'The server does not take this key.' : 'The plan shows with a key.';
  }
}

// showChat says before one types that the model cannot chat.
function showChat() {
  const why = noChat[$('model').value] || '';
  $('nochat').textContent = why;
  $('nochat').hidden = !why;
  text.disabled = $('send').disabled = !!why;
}

function showPlan(plan) {
  const legend = $('legend'), blocks = $('blocks');
  legend.replaceChildren();
  blocks.replaceChildren();
  for (const d of plan.devices || []) {
    if (!d.weights_bytes && !d.kv_bytes) continue;
    const li = make('li');
    const rest = (d.kv_bytes || 0) + (d.activation_bytes || 0) + (d.staging_bytes || 0) + (d.request_bytes || 0) + (d.runtime_bytes || 0);
    li.append(make('i', tier(d.device)), make('span', '', place(d.device)),
      make('small', '', [d.weights_bytes && bytes(d.weights_bytes), rest && bytes(rest) + ' working'].filter(Boolean).join(' + ')));
    legend.append(li);
  }
  const map = plan.device_map || [];
  blocks.className = map.length > 40 ? 'many' : '';
  for (const [path, device] of map) {
    const li = make('li', tier(String(device)), path || 'the whole model');
    li.title = (path || 'the whole model') + ': ' + place(String(device));
    li.append(make('span', '', place(String(device))));
    blocks.append(li);
  }
}

async function watch() {
  let wait = 5000;
  try {
    const h = await get('/health'), l = h.loading || {};
    const loading = l.blocks_done < l.blocks_total;
    $('load').hidden = !loading;
    $('state').textContent = h.error ? 'weights could not be read: ' + h.error : loading ? 'loading; answers already' : 'ready';
    if (loading) {
      wait = 500;
      $('bar').value = l.bytes_total ? l.bytes_done / l.bytes_total : 0;
      $('left').textContent = l.blocks_done + ' of ' + l.blocks_total + ' blocks, ' + bytes(l.bytes_done) + ' of ' + bytes(l.bytes_total) +
        (l.seconds_left >= 1 ? ', about ' + Math.ceil(l.seconds_left) + ' s left' : '');
    }
  } catch {
    $('state').textContent = 'no connection';
  }
  setTimeout(watch, wait);
}

// --- chat

function add(kind, content) {
  const hint = log.querySelector('.hint');
  if (hint) hint.remove();
  const e = log.appendChild(make('div', kind, content));
  follow(true);
  return e;
}

// follow scrolls to the end, unless the reader has scrolled up.
function follow(always) {
  if (always || log.scrollHeight - log.scrollTop - log.clientHeight < 80) log.scrollTop = log.scrollHeight;
}

// sse yields the data of server-sent events.
async function* sse(body) {
  const decoder = new TextDecoder();
  let held = '';
  for (const reader = body.getReader(); ;) {
    const {done, value} = await reader.read();
    if (done) return;
    held += decoder.decode(value, {stream: true});
    const events = held.split('\n\n');
    held = events.pop();
    for (const e of events) if (e.startsWith('data: ')) yield e.slice(6);
  }
}

async function failure(r) {
  if (r.status === 401) { askKey(); return 'This server wants an API key: enter it above, then send again.'; }
  try { return (await r.json()).error.message; } catch { return 'The server answered ' + r.status + '.'; }
}

async function answer(out, signal) {
  const r = await fetch('/v1/chat/completions', {
    method: 'POST', signal, headers: {'Content-Type': 'application/json', ...headers()},
    body: JSON.stringify({model: $('model').value || undefined, messages, stream: true, stream_options: {include_usage: true}}),
  });
  if (!r.ok) throw new Error(await failure(r));
  const begin = performance.now();
  let first = 0, used = null, whole = false, thought = null;
  for await (const data of sse(r.body)) {
    if (data === '[DONE]') { whole = true; break; }
    const c = JSON.parse(data);
    if (c.error) throw new Error(c.error.message);
    if (c.usage) used = c.usage;
    for (const choice of c.choices) {
      first ||= performance.now();
      const {content, reasoning_content} = choice.delta;
      if (reasoning_content) {
        if (!thought) out.before(thought = make('div', 'turn thought'));
        thought.append(reasoning_content);
      }
      if (content) out.append(content);
    }
    follow();
  }
  if (!whole) throw new Error('The connection broke off.');
  const seconds = (performance.now() - (first || begin)) / 1000;
  if (used) return used.completion_tokens + ' tokens' + (used.completion_tokens > 1 && seconds > 0 ? ', ' + ((used.completion_tokens - 1) / seconds).toFixed(1) + ' a second' : '');
}

async function send() {
  const content = text.value.trim();
  if (!content || running) return;
  text.value = '';
  grow();
  messages.push({role: 'user', content});
  add('turn user', content);
  const out = add('turn assistant busy', '');
  const mine = running = new AbortController();
  $('send').hidden = true;
  $('stop').hidden = false;
  let note = '', error = '';
  try {
    note = await answer(out, mine.signal);
  } catch (e) {
    if (e.name === 'AbortError') note = 'stopped'; else error = e.message || String(e);
  }
  out.classList.remove('busy');
  if (running !== mine) return; // a new chat has begun
  running = null;
  $('send').hidden = false;
  $('stop').hidden = true;
  if (out.textContent) messages.push({role: 'assistant', content: out.textContent});
  else { out.remove(); messages.pop(); if ((error || note === 'stopped') && !text.value.trim()) text.value = content; }
  keep();
  if (note) add('note', note);
  if (error) add('error', error).setAttribute('role', 'alert');
  text.focus();
}

// keep lets the conversation outlive a reload of the page.
function keep() {
  try { sessionStorage.setItem('messages', JSON.stringify(messages)); } catch { /* too long to keep */ }
}

function recall() {
  try { messages = JSON.parse(sessionStorage.getItem('messages')) || []; } catch { /* none */ }
  for (const m of messages) add('turn ' + m.role, m.content);
}

function stop() { if (running) running.abort(); }

function grow() {
  text.style.height = 'auto';
  text.style.height = text.scrollHeight + 2 + 'px';
}

$('ask').onsubmit = e => { e.preventDefault(); send(); };
$('stop').onclick = stop;
$('clear').onclick = () => {
  stop();
  running = null;
  messages = [];
  keep();
  log.replaceChildren();
  $('send').hidden = false;
  $('stop').hidden = true;
  text.focus();
};
text.oninput = grow;
text.onkeydown = e => {
  if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) { e.preventDefault(); send(); }
};
document.addEventListener('keydown', e => { if (e.key === 'Escape') stop(); });

$('model').onchange = () => { chosen = $('model').value; sessionStorage.setItem('model', chosen); showChat(); };

recall();
showModel();
watch();
