// The page: wires the conversation, its settings, the model's map and the keyboard.
import {$, el, download} from './dom.js';
import {get, hasKey, setKey, onUnauthorized} from './server.js';
import {local, lasts, remember} from './storage.js';
import * as store from './store.js';
import * as chats from './chat.js';
import * as settings from './settings.js';
import * as map from './map.js';

let models = [];
const model = () => models.find(m => m.id === $('model').value);

// --- models

const label = m => m.status === 'failed' ? ' (cannot be loaded)' : m.parent ? ' (adapter)' : m.status === 'known' ? ' (not loaded)' : '';

async function showModels() {
  try {
    models = (await get('/v1/models')).data;
    const before = $('model').value;
    $('model').replaceChildren(...models.map(m => el('option', {value: m.id}, m.id + label(m))));
    $('model').hidden = false;
    $('model').disabled = models.length < 2;
    choose(before || chats.chat.model || local.getItem('heft.model'));
    await map.showPlan();
  } catch (e) {
    if (e.status !== 401) status(e.message);
  }
}

/** choose selects a model, the first one if there is none of this name. */
function choose(id) {
  if (models.some(m => m.id === id)) $('model').value = id;
  const m = model();
  map.choose(m?.parent || m?.id || '');
  showNoChat();
}

/** showNoChat says before anything is typed that the model cannot chat. */
function showNoChat() {
  const why = model()?.no_chat || '';
  $('nochat').textContent = why;
  $('nochat').hidden = !why;
  $('text').disabled = $('send').disabled = Boolean(why);
  $('text').placeholder = why ? 'This model cannot chat' : 'Message ' + (model()?.id || '');
}

$('model').addEventListener('change', () => {
  remember(local, 'heft.model', $('model').value);
  choose($('model').value);
  reconnect();
});

function status(text) {
  if ($('state').textContent !== text) $('state').textContent = text;
  $('state').className = text.replace(/\W.*/, '');
}

// --- the key

let refused = false; // the user has closed the dialog without a key

onUnauthorized(() => {
  $('key-open').hidden = false;
  status('key needed');
  if (refused || $('key-dialog').open) return;
  $('key-why').textContent = hasKey() ? 'The server does not accept this API key.' : 'This server needs an API key.';
  $('key-dialog').showModal();
  $('key').focus();
});
$('key-form').addEventListener('submit', e => {
  e.preventDefault();
  setKey($('key').value.trim());
  refused = false;
  $('key').value = '';
  $('key-dialog').close();
  showModels();
  reconnect();
  $('text').focus();
});
$('key-cancel').addEventListener('click', () => { refused = true; $('key-dialog').close(); });
$('key-dialog').addEventListener('cancel', () => { refused = true; });
$('key-open').addEventListener('click', () => $('key-dialog').showModal());

// --- conversations

function show(chat) {
  chats.open(chat);
  settings.show(chats.chat);
  if (chat.model) choose(chat.model);
  chats.drawList(show);
  closeDrawers();
}

$('new').addEventListener('click', () => {
  show(store.fresh(chats.chat));
  $('text').focus();
});

function grow() {
  $('text').style.height = 'auto';
  $('text').style.height = $('text').scrollHeight + 2 + 'px';
}

function submit() {
  const content = $('text').value.trim();
  if (!content || chats.isRunning() || $('send').disabled) return;
  $('text').value = '';
  grow();
  chats.send(content);
}

$('ask').addEventListener('submit', e => { e.preventDefault(); submit(); });
$('text').addEventListener('input', grow);
$('text').addEventListener('keydown', e => {
  if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) { e.preventDefault(); submit(); }
});
$('stop').addEventListener('click', () => { chats.stop(); $('text').focus(); });

const fileName = () => (chats.chat.title || 'conversation').toLowerCase().replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-|-$/g, '').slice(0, 40) || 'conversation';
$('export-md').addEventListener('click', () => download(fileName() + '.md', 'text/markdown', store.asMarkdown(chats.chat)));
$('export-json').addEventListener('click', () => download(fileName() + '.json', 'application/json', store.asJSON(chats.chat)));

// --- drawers, tabs, theme, keyboard

const drawers = [['open-chats', 'chats'], ['open-panel', 'panel']];

/** behind are the parts of the page that an open drawer covers: they take no focus meanwhile. */
const behind = () => [document.querySelector('header'), document.querySelector('main'), ...drawers.map(([, id]) => $(id)).filter(d => !d.classList.contains('open'))];

function closeDrawers() {
  for (const [opener, id] of drawers) {
    $(id).classList.remove('open');
    $(opener).setAttribute('aria-expanded', 'false');
  }
  for (const part of behind()) part.inert = false;
  $('backdrop').hidden = true;
}
matchMedia('(max-width: 1120px)').addEventListener('change', closeDrawers);
matchMedia('(max-width: 760px)').addEventListener('change', closeDrawers);

for (const [opener, id] of drawers) {
  $(opener).addEventListener('click', () => {
    const opens = !$(id).classList.contains('open');
    closeDrawers();
    if (!opens) return;
    $(id).classList.add('open');
    $(opener).setAttribute('aria-expanded', 'true');
    $('backdrop').hidden = false;
    for (const part of behind()) part.inert = true;
    $(id).querySelector('button').focus();
  });
}
$('backdrop').addEventListener('click', closeDrawers);
for (const b of document.querySelectorAll('.close')) b.addEventListener('click', () => leaveDrawer());

function leaveDrawer() {
  const open = drawers.find(([, id]) => $(id).classList.contains('open'));
  closeDrawers();
  if (open) $(open[0]).focus();
  return Boolean(open);
}

document.addEventListener('keydown', e => {
  if (e.key !== 'Escape' || $('key-dialog').open) return;
  if (!leaveDrawer()) chats.stop();
});

const tabs = ['tab-map', 'tab-settings'];

function showTab(id) {
  for (const t of tabs) {
    $(t).setAttribute('aria-selected', String(t === id));
    $(t).tabIndex = t === id ? 0 : -1;
    $($(t).getAttribute('aria-controls')).hidden = t !== id;
  }
}

for (const [i, id] of tabs.entries()) {
  $(id).addEventListener('click', () => showTab(id));
  $(id).addEventListener('keydown', e => {
    if (e.key !== 'ArrowLeft' && e.key !== 'ArrowRight') return;
    const next = tabs[(i + 1) % tabs.length];
    showTab(next);
    $(next).focus();
  });
}

const themes = ['auto', 'light', 'dark'];

function theme(t) {
  document.documentElement.dataset.theme = t;
  $('theme').setAttribute('aria-label', 'Theme: ' + t);
  $('theme').title = 'Theme: ' + t;
}

$('theme').addEventListener('click', () => {
  const next = themes[(themes.indexOf(document.documentElement.dataset.theme) + 1) % themes.length];
  remember(local, 'heft.theme', next);
  theme(next);
});

// --- start

theme(themes.includes(local.getItem('heft.theme')) ? local.getItem('heft.theme') : 'auto');
settings.start((system, values) => {
  chats.chat.system = system;
  chats.chat.settings = values;
  if (chats.chat.messages.length) chats.keep(chats.chat);
});
chats.use({
  changed: () => chats.drawList(show),
  ended: () => { // the model may have been loaded for the answer
    if (models.some(m => m.status && m.status !== 'ready')) showModels();
    else map.showPlan().catch(() => {});
  },
  model: () => $('model').value,
  context: () => model()?.max_model_len || 0,
});
store.onOtherTab(id => {
  chats.follow(id);
  settings.show(chats.chat);
  chats.drawList(show);
});
window.addEventListener('pagehide', chats.leave);
if (!lasts()) $('where').textContent = 'This browser allows no storage: conversations last until the page is closed.';
show(store.all()[0] || store.fresh());
const reconnect = map.watch(status, showModels); // a server that was restarted may have other models
showModels().then(() => { if (!$('text').disabled && !$('key-dialog').open) $('text').focus(); });
