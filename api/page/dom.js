// Small helpers for elements, texts and numbers.

export const $ = id => document.getElementById(id);

/** el makes an element. A prop that is a function listens to the event of its name. */
export function el(tag, props = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === 'function') e.addEventListener(name, value);
    else if (name in e && name !== 'list') e[name] = value;
    else e.setAttribute(name, value);
  }
  e.append(...children.filter(c => c !== null && c !== undefined && c !== false));
  return e;
}

const SVG = 'http://www.w3.org/2000/svg';

/** icon draws a symbol of index.html. */
export function icon(name) {
  const svg = document.createElementNS(SVG, 'svg'), use = document.createElementNS(SVG, 'use');
  svg.setAttribute('aria-hidden', 'true');
  use.setAttribute('href', '#i-' + name);
  svg.append(use);
  return svg;
}

/** button makes a small button with an icon. Its label is its name for screen readers, too. */
export function button(name, label, click, text) {
  return el('button', {type: 'button', className: 'quiet small', title: label, 'aria-label': label, click}, icon(name), text);
}

/** bytes writes a size: 3.2 GiB. */
export function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return (i && n < 100 ? n.toFixed(1) : Math.round(n)) + ' ' + units[i];
}

/** rate writes bytes per second as GB/s, in which disks and memory are sold. */
export const rate = n => (n / 1e9).toFixed(n >= 1e10 ? 0 : n >= 1e8 ? 1 : 2) + ' GB/s';

export const count = n => n.toLocaleString('en');

/** say has a screen reader speak, once. */
export function say(text) { $('say').textContent = text; }

/** copy puts text on the clipboard, on pages without HTTPS too, and shows on the button that it did. */
export async function copy(text, from) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const hidden = el('textarea', {value: text, className: 'hidden'}), focus = document.activeElement;
    document.body.append(hidden);
    hidden.select();
    document.execCommand('copy');
    hidden.remove();
    focus?.focus();
  }
  say('Copied');
  if (!from) return;
  const use = from.querySelector('use'), before = use.getAttribute('href');
  if (before === '#i-done') return;
  use.setAttribute('href', '#i-done');
  setTimeout(() => use.setAttribute('href', before), 1500);
}

/** download saves text as a file. */
export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], {type}));
  el('a', {href: url, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
