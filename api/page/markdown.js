// Markdown to elements. Raw HTML stays text (markdown-it), and what comes out passes a sanitiser
// (DOMPurify) that knows only the elements below. The page's policy is the third wall: it runs no script
// but the page's own files.
import {el, icon, copy} from './dom.js';
import {math} from './math.js';

const md = window.markdownit({html: false, linkify: true, breaks: false, typographer: false});
md.linkify.set({fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false});

const tags = ['a', 'blockquote', 'br', 'code', 'del', 'em', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'hr', 'li', 'ol', 'p', 'pre', 's', 'strong', 'table', 'tbody', 'td', 'th',
  'thead', 'tr', 'ul'];
const rules = {ALLOWED_TAGS: tags, ALLOWED_ATTR: ['href', 'title', 'class', 'start'], ALLOW_DATA_ATTR: false, ALLOW_ARIA_ATTR: false,
  ALLOWED_URI_REGEXP: /^(?:https?:\/\/|mailto:)/i, RETURN_DOM_FRAGMENT: true};

// The policy allows no style attributes: cells are aligned by a class.
for (const cell of ['th_open', 'td_open']) {
  md.renderer.rules[cell] = (tokens, i, options, env, self) => {
    const style = tokens[i].attrGet('style') || '';
    tokens[i].attrs = null;
    if (style) tokens[i].attrSet('class', style.replace('text-align:', 'to-'));
    return self.renderToken(tokens, i, options);
  };
}

// Formulas are MathML, or keep their TeX: Markdown would take its backslashes, and its stars and underscores for
// emphasis.
const formulas = [/\\\(.+?\\\)/sy, /\\\[.+?\\\]/sy, /\$\$.+?\$\$/sy, /\$(?=\S)[^$\n]*[^$\s\\]\$(?!\d)/y];
md.inline.ruler.before('escape', 'formula', (state, silent) => {
  const first = state.src[state.pos];
  if (first !== '\\' && first !== '$') return false;
  for (const formula of formulas) {
    formula.lastIndex = state.pos;
    const found = formula.exec(state.src);
    if (!found || formula.lastIndex > state.posMax) continue;
    if (!silent) state.push('formula', 'code', 0).content = found[0];
    state.pos = formula.lastIndex;
    return true;
  }
  return false;
});

md.renderer.rules.formula = (tokens, i) => `<code class="tex">${md.utils.escapeHtml(tokens[i].content)}</code>`;

// Items of a list of tasks begin with a box.
md.core.ruler.after('inline', 'tasks', state => {
  state.tokens.forEach((token, i) => {
    const text = token.children?.[0];
    if (token.type !== 'inline' || text?.type !== 'text' || state.tokens[i - 2]?.type !== 'list_item_open') return;
    text.content = text.content.replace(/^\[ \] /, '☐ ').replace(/^\[[xX]\] /, '☑ ');
  });
});

// No host but the server is asked for anything: an image is a link to it.
md.renderer.rules.image = (tokens, i) => {
  const escape = md.utils.escapeHtml;
  return `<a href="${escape(tokens[i].attrGet('src') || '')}">${escape(tokens[i].content || 'image')}</a>`;
};

/** render returns the elements of a text in Markdown. */
export function render(text) {
  const out = window.DOMPurify.sanitize(md.render(text), rules);
  for (const a of out.querySelectorAll('a')) {
    a.target = '_blank';
    a.rel = 'noopener noreferrer nofollow';
  }
  for (const code of out.querySelectorAll('code.tex')) showFormula(code);
  for (const code of out.querySelectorAll('pre > code')) frameCode(code);
  for (const table of out.querySelectorAll('table')) frameTable(table);
  return out;
}

function showFormula(code) {
  code.removeAttribute('class');
  const text = code.textContent, marks = text.startsWith('$') && !text.startsWith('$$') ? 1 : 2;
  const formula = math(text.slice(marks, -marks), text.startsWith('$$') || text.startsWith('\\['));
  if (formula) code.replaceWith(formula);
}

function copier(what, text) {
  const b = el('button', {type: 'button', className: 'quiet small', 'aria-label': 'Copy ' + what, title: 'Copy ' + what}, icon('copy'), 'Copy');
  b.addEventListener('click', () => copy(text(), b));
  return b;
}

function frameCode(code) {
  const language = /(?:^| )language-(\S+)/.exec(code.className)?.[1] || '';
  code.removeAttribute('class');
  const pre = code.parentElement, frame = el('div', {className: 'code'});
  pre.replaceWith(frame);
  pre.tabIndex = 0;
  pre.setAttribute('aria-label', language ? 'Code in ' + language : 'Code');
  frame.append(el('div', {className: 'code-bar'}, el('span', {}, language), copier('code', () => code.textContent)), pre);
}

/** frameTable lets a wide table scroll, and be copied into a spreadsheet. */
function frameTable(table) {
  const frame = el('div', {className: 'table'}), scroll = el('div', {className: 'scroll', tabIndex: 0, role: 'region', 'aria-label': 'Table'});
  table.replaceWith(frame);
  scroll.append(table);
  const cells = row => [...row.cells].map(c => c.textContent.replace(/[\t\n]+/g, ' ').trim()).join('\t');
  frame.append(scroll, copier('table', () => [...table.rows].map(cells).join('\n') + '\n'));
}
