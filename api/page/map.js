// The map of the model: where its blocks are, which of them run, and how fast weights are read.
import {$, el, bytes, rate, count} from './dom.js';
import {get, request, events} from './server.js';

const kind = d => d === 'cpu' || d === 'disk' ? d : 'gpu';
const place = d => d === 'cpu' ? 'Memory' : d === 'disk' ? 'Disk' : 'GPU ' + d;

let name = '', drawn = '', tiles = [], rates = {};
const layouts = {}; // the blocks of each model
let lasts = {}; // the last report of each model: a model chosen later has one to compare with

/** choose shows the base model called id. */
export function choose(id) {
  if (id === name) return;
  name = id;
  if (layouts[id]) drawBlocks(layouts[id]);
}

// --- what happens now

let stream = null;

/** watch follows GET /activity while the page is visible. status(text) is called with each change, and again() when
 * there is a connection after there was none. */
export function watch(status, again) {
  let lost = false;
  const follow = async () => {
    if (stream || document.hidden) return;
    const mine = stream = new AbortController();
    for (let wait = 1000; !mine.signal.aborted;) {
      try {
        const r = await request('/activity?stream=true', {signal: mine.signal});
        for await (const data of events(r)) {
          wait = 1000;
          if (lost) {
            lost = false;
            lasts = {};
            again();
          }
          take(JSON.parse(data), status);
        }
      } catch (e) {
        if (e.status === 401) break;
      }
      if (mine.signal.aborted) break;
      lost = true;
      status('no connection');
      await new Promise(done => setTimeout(done, wait));
      wait = Math.min(2 * wait, 15000);
    }
    if (stream === mine) stream = null;
  };
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) { stream?.abort(); stream = null; } else follow();
  });
  follow();
  return () => { stream?.abort(); stream = null; follow(); };
}

function take(report, status) {
  for (const m of report.models) if (m.blocks?.length) layouts[m.model] = m.blocks;
  const before = lasts;
  lasts = Object.fromEntries(report.models.map(m => [m.model, {...m, seconds: report.seconds}]));
  const m = report.models.find(m => m.model === name) || report.models[0];
  if (!m) return;
  const last = before[m.model];
  if (m.blocks?.length) drawBlocks(m.blocks);
  status(m.status === 'loading' ? 'loading; answers already' : m.status);
  if (m.status === 'loading') pollLoading();
  $('running').textContent = count(m.running);
  $('waiting').textContent = count(m.waiting);
  gauge('kv', m.kv.used_pages, m.kv.pages, n => count(n * m.kv.page_tokens) + (n === m.kv.pages ? ' tokens' : ''));
  const held = Object.values(m.memory.held_bytes || {}).reduce((a, b) => a + b, 0);
  gauge('held', held, m.memory.limit_bytes, bytes);
  const seconds = last ? report.seconds - last.seconds : 0;
  rates = {};
  if (seconds > 0) {
    $('rate').textContent = ((m.generated_tokens - last.generated_tokens) / seconds).toFixed(1);
    for (const t of m.tiers) {
      const was = last.tiers.find(b => b.tier === t.tier);
      if (was) rates[t.tier] = (t.read_bytes - was.read_bytes) / seconds;
    }
    light(m, last);
  }
  if (m.tiers.length) drawTiers(m.tiers);
}

function gauge(id, value, most, write) {
  $(id).textContent = most ? write(value) + ' of ' + write(most) : write(value);
  $(id + '-bar').style.width = most ? Math.min(100, 100 * value / most) + '%' : '0';
}

function light(m, last) {
  tiles.forEach((tile, i) => {
    const runs = m.runs[i] > last.runs[i], reads = m.read_bytes[i] > last.read_bytes[i];
    tile.classList.toggle('runs', runs);
    tile.classList.toggle('reads', reads);
  });
}

let polling = false;

async function pollLoading() {
  if (polling) return;
  polling = true;
  try {
    for (;;) {
      const l = (await get('/health')).loading || {};
      const loading = l.blocks_done < l.blocks_total;
      $('load').hidden = !loading;
      if (!loading) break;
      $('load-bar').value = l.bytes_total ? l.bytes_done / l.bytes_total : 0;
      $('load-left').textContent = l.blocks_done + ' of ' + l.blocks_total + ' blocks, ' + bytes(l.bytes_done) + ' of ' + bytes(l.bytes_total) +
        (l.seconds_left >= 1 ? ', about ' + Math.ceil(l.seconds_left) + ' s left' : '');
      await new Promise(done => setTimeout(done, 500));
    }
  } catch { /* the stream says that there is no connection */ }
  polling = false;
}

// --- where the weights are

function drawTiers(tiers) {
  $('tiers').replaceChildren(...tiers.map(t => el('li', {}, el('i', {className: kind(t.tier)}), el('span', {}, place(t.tier)),
    el('span', {className: 'size'}, bytes(t.bytes)), el('span', {className: 'rate' + (rates[t.tier] > 0 ? ' on' : '')}, rates[t.tier] > 0 ? rate(rates[t.tier]) : kind(t.tier) === 'gpu' ? '' : 'idle'))));
}

const total = b => Object.values(b.bytes).reduce((a, n) => a + n, 0);
const where = b => Object.entries(b.bytes).filter(([, n]) => n > 0).map(([d, n]) => place(d) + ' ' + bytes(n)).join(', ') || 'no weights';

/** drawBlocks draws a tile for each block. Its width is its size, its colours are the tiers. */
function drawBlocks(list) {
  if (JSON.stringify(list) === drawn) return;
  drawn = JSON.stringify(list);
  const most = Math.max(1, ...list.map(total));
  tiles = list.map(b => {
    const tile = el('div', {className: 'tile', title: b.path + ': ' + where(b)});
    tile.style.width = Math.max(3, 100 * Math.sqrt(total(b) / most)) + '%';
    for (const [d, n] of Object.entries(b.bytes)) {
      if (n <= 0) continue;
      const part = el('i', {className: kind(d)});
      part.style.flexGrow = n;
      tile.append(part);
    }
    tile.addEventListener('pointerenter', () => { $('readout').textContent = b.path + ': ' + where(b); });
    return tile;
  });
  $('map').className = list.length > 90 ? 'dense' : list.length > 24 ? 'close' : '';
  $('map').replaceChildren(...tiles);
  const tiers = {};
  for (const b of list) for (const d of Object.keys(b.bytes)) tiers[d] = (tiers[d] || 0) + 1;
  $('map').setAttribute('aria-label', list.length + ' blocks: ' + Object.entries(tiers).map(([d, n]) => n + ' with weights in ' + place(d).toLowerCase()).join(', '));
  $('rows').replaceChildren(...list.map(b => el('tr', {}, el('th', {scope: 'row'}, b.path || 'the whole model'), el('td', {}, bytes(total(b))), el('td', {}, where(b)))));
}

// --- plan and measurement

const seconds = s => s >= 100 ? Math.round(s) + ' s' : s >= 1 ? s.toFixed(1) + ' s' : Math.round(1000 * s) + ' ms';
const figures = [['Loading', 'load_seconds', seconds], ['First token', 'first_token_seconds', seconds],
  ['Tokens per second', 'tokens_per_second', n => n >= 100 ? count(Math.round(n)) : n.toFixed(1)], ['Disk per token', 'disk_bytes_per_token', bytes]];

let asked = 0;

/** showPlan reads GET /plan. An answer that a later one has overtaken is not shown. */
export async function showPlan() {
  const mine = ++asked;
  const all = await get('/plan');
  if (mine !== asked) return;
  const plan = all.models?.find(m => m.model === name)?.plan || all;
  const cell = (speed, key, write) => el('td', {}, speed?.[key] === null || speed?.[key] === undefined ? '–' : write(speed[key]));
  $('plan').replaceChildren(...figures.map(([label, key, write]) => el('tr', {}, el('th', {scope: 'row'}, label), cell(plan.predicted, key, write), cell(plan.measured, key, write))));
  const help = plan.what_helps?.[0];
  $('helps').hidden = !help;
  if (help) {
    const change = [help.more_cpu_bytes && bytes(help.more_cpu_bytes) + ' more memory', help.compress && '--compress ' + help.compress + ', with the same answers,',
      help.quantize && '--quantize ' + help.quantize].filter(Boolean).join(' and ');
    $('helps').textContent = 'What would help most: ' + change + ', predicted ' + help.tokens_per_second.toFixed(1) + ' tokens per second.';
  }
  if (!layouts[name]) drawTiers( // a server that does not count this model's activity
    (plan.devices || []).filter(d => d.weights_bytes).map(d => ({tier: d.device, bytes: d.weights_bytes})));
}
