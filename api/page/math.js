// TeX to MathML, which browsers show themselves: the subset that language models write. What is not in it makes
// math return null, and the page shows the TeX. Only elements and attributes named here are made; text stays text.

const MATHML = 'http://www.w3.org/1998/Math/MathML';

const letters = words('alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι kappa κ lambda λ mu μ nu ν xi ξ pi π varpi ϖ rho ρ varrho ϱ ' +
  'sigma σ varsigma ς tau τ upsilon υ phi ϕ varphi φ chi χ psi ψ omega ω Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Upsilon Υ Phi Φ Psi Ψ Omega Ω ' +
  'infty ∞ partial ∂ nabla ∇ ell ℓ hbar ℏ Re ℜ Im ℑ aleph ℵ emptyset ∅ varnothing ∅ top ⊤ bot ⊥ degree ° angle ∠ imath ı jmath ȷ');
const operators = words('cdot ⋅ times × div ÷ pm ± mp ∓ ast ∗ star ⋆ circ ∘ bullet ∙ oplus ⊕ ominus ⊖ otimes ⊗ odot ⊙ cap ∩ cup ∪ setminus ∖ wedge ∧ land ∧ vee ∨ lor ∨ neg ¬ lnot ¬ ' +
  'le ≤ leq ≤ leqslant ⩽ ge ≥ geq ≥ geqslant ⩾ ne ≠ neq ≠ ll ≪ gg ≫ approx ≈ sim ∼ simeq ≃ cong ≅ equiv ≡ propto ∝ in ∈ notin ∉ ni ∋ subset ⊂ subseteq ⊆ subsetneq ⊊ supset ⊃ supseteq ⊇ ' +
  'mid ∣ nmid ∤ parallel ∥ perp ⊥ forall ∀ exists ∃ nexists ∄ therefore ∴ because ∵ to → rightarrow → longrightarrow ⟶ leftarrow ← gets ← longleftarrow ⟵ leftrightarrow ↔ Rightarrow ⇒ ' +
  'Longrightarrow ⟹ implies ⟹ Leftarrow ⇐ impliedby ⟸ Leftrightarrow ⇔ iff ⟺ mapsto ↦ hookrightarrow ↪ uparrow ↑ downarrow ↓ rightharpoonup ⇀ rightleftharpoons ⇌ vdash ⊢ models ⊨ ' +
  'ldots … dots … cdots ⋯ vdots ⋮ ddots ⋱ prime ′ colon : triangleq ≜ coloneqq ≔ langle ⟨ rangle ⟩ lfloor ⌊ rfloor ⌋ lceil ⌈ rceil ⌉ lvert | rvert | vert | lVert ‖ rVert ‖ Vert ‖ ' +
  'lbrace { rbrace } lbrack [ rbrack ] backslash \\ prec ≺ succ ≻ preceq ⪯ succeq ⪰ triangle △ square □ blacksquare ■ checkmark ✓ dagger † dag †');
const large = words('sum ∑ prod ∏ coprod ∐ bigcup ⋃ bigcap ⋂ bigoplus ⨁ bigotimes ⨂ bigvee ⋁ bigwedge ⋀');
const integrals = words('int ∫ iint ∬ iiint ∭ oint ∮');
const functions = new Set('sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh coth log ln lg exp deg dim ker hom arg gcd det Pr'.split(' '));
const limits = words('lim lim max max min min sup sup inf inf limsup lim\u2009sup liminf lim\u2009inf argmax arg\u2009max argmin arg\u2009min');
const accents = words('hat ^ widehat ^ bar ¯ overline ‾ vec → overrightarrow → dot ˙ ddot ¨ tilde ~ widetilde ~ check ˇ acute ´ grave ` overbrace ⏞');
const below = words('underline _ underbrace ⏟');
const spaces = {__proto__: null, ',': 1 / 6, ':': 2 / 9, '>': 2 / 9, ';': 5 / 18, '!': 0, ' ': 1 / 3, quad: 1, qquad: 2, enspace: 0.5, thinspace: 1 / 6};
const ignored = new Set('displaystyle textstyle scriptstyle limits nolimits nonumber notag hline mathstrut'.split(' '));
const sizes = /^[bB]ig{1,2}[lrm]?$/;
const fences = {__proto__: null, matrix: ['', ''], smallmatrix: ['', ''], pmatrix: ['(', ')'], bmatrix: ['[', ']'], Bmatrix: ['{', '}'], vmatrix: ['|', '|'], Vmatrix: ['‖', '‖'], array: ['', ''],
  cases: ['{', ''], aligned: ['', ''], align: ['', ''], alignat: ['', ''], split: ['', ''], gathered: ['', ''], gather: ['', ''], equation: ['', '']};
const looks = {__proto__: null, cases: 'cases', aligned: 'aligned', align: 'aligned', split: 'aligned'};
// Alphabets of Unicode begin at A and, for some, at a and 0. Some of their letters are older than the alphabet.
const alphabets = {__proto__: null, mathbf: [0x1D400, 0x1D41A, 0x1D7CE], boldsymbol: [0x1D400, 0x1D41A, 0x1D7CE], bm: [0x1D400, 0x1D41A, 0x1D7CE], mathbb: [0x1D538, 0x1D552, 0x1D7D8],
  mathcal: [0x1D49C, 0x1D4B6], mathscr: [0x1D49C, 0x1D4B6], mathfrak: [0x1D504, 0x1D51E], mathsf: [0x1D5A0, 0x1D5BA, 0x1D7E2], mathtt: [0x1D670, 0x1D68A, 0x1D7F6]};
const older = {__proto__: null, mathbb: 'CℂHℍNℕPℙQℚRℝZℤ', mathcal: 'BℬEℰFℱHℋIℐLℒMℳRℛeℯgℊoℴ', mathscr: 'BℬEℰFℱHℋIℐLℒMℳRℛeℯgℊoℴ', mathfrak: 'CℭHℌIℑRℜZℨ'};

function words(list) {
  const all = list.split(' '), out = new Map();
  for (let i = 0; i < all.length; i += 2) out.set(all[i], all[i + 1]);
  return out;
}

function node(tag, attributes, ...children) {
  const e = document.createElementNS(MATHML, tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  e.append(...children);
  return e;
}

const row = list => list.length === 1 ? list[0] : node('mrow', {}, ...list);
const fence = text => text ? [node('mo', {stretchy: 'true'}, text)] : [];

/** math returns the element of a formula in TeX, null if it is not of the subset. */
export function math(tex, block) {
  if (tex.length > 5000) return null;
  try {
    const parser = new Parser(tex, block), list = parser.row(() => false);
    if (!list.length) return null;
    return node('math', {display: block ? 'block' : 'inline'}, node('semantics', {}, node('mrow', {}, ...list), node('annotation', {encoding: 'application/x-tex'}, tex)));
  } catch (e) {
    if (e instanceof Unknown) return null;
    throw e;
  }
}

class Unknown extends Error {}

class Parser {
  constructor(tex, block) {
    this.tokens = tex.match(/\\[a-zA-Z]+\*?|\\[^]|\s+|\d+(?:\.\d+)?|[^]/gu) || [];
    this.at = 0;
    this.block = block;
    this.depth = 0;
  }

  peek() {
    while (/^\s/.test(this.tokens[this.at] ?? '')) this.at++;
    return this.tokens[this.at];
  }

  next() {
    const token = this.peek();
    if (token === undefined) throw new Unknown('the end');
    this.at++;
    return token;
  }

  skip(token) {
    if (this.peek() !== token) return false;
    this.at++;
    return true;
  }

  want(token) { if (this.next() !== token) throw new Unknown(token); }

  /** row reads elements, with their scripts, up to a token for which ends is true, which stays. */
  row(ends) {
    if (++this.depth > 40) throw new Unknown('depth');
    const list = [];
    for (let token; (token = this.peek()) !== undefined && !ends(token);) {
      if (token === '}' || token === '&' || token === '\\\\' || token === '\\right' || token === '\\end') throw new Unknown(token);
      const base = token === '^' || token === '_' ? node('mrow', {}) : this.atom();
      if (base) list.push(this.scripts(base));
    }
    this.depth--;
    return list;
  }

  scripts(base) {
    let sub, sup;
    for (let token; (token = this.peek()) === '^' || token === '_' || token === "'";) {
      this.at++;
      if (token === "'") {
        let primes = '′';
        while (this.skip("'")) primes += '′';
        const prime = node('mo', {}, primes);
        sup = sup ? node('mrow', {}, sup, prime) : prime;
      } else if (token === '_') {
        if (sub) throw new Unknown('two subscripts');
        sub = this.argument();
      } else {
        sup = sup ? node('mrow', {}, sup, this.argument()) : this.argument();
      }
    }
    if (!sub && !sup) return base;
    const [one, two, three] = base.limits && (this.block || base.limits === 'always') ? ['munder', 'mover', 'munderover'] : ['msub', 'msup', 'msubsup'];
    return sub && sup ? node(three, {}, base, sub, sup) : sub ? node(one, {}, base, sub) : node(two, {}, base, sup);
  }

  /** argument reads what stands in braces, or one element without scripts. */
  argument() {
    if (this.peek() === '{') return this.atom();
    const token = this.peek();
    if (/^\d/.test(token ?? '') && token.length > 1) { // x^23 is x^2 3
      this.tokens.splice(this.at, 1, token[0], token.slice(1));
    }
    const e = this.atom();
    if (!e) throw new Unknown('argument');
    return e;
  }

  /** raw returns the text of an argument. */
  raw() {
    this.want('{');
    let text = '', depth = 1;
    for (;;) {
      const token = this.tokens[this.at++];
      if (token === undefined) throw new Unknown('the end');
      if (token === '{') depth++;
      if (token === '}' && --depth === 0) return text;
      text += /^\\[^a-zA-Z]/.test(token) ? token.slice(1) : token;
    }
  }

  atom() {
    const token = this.next();
    if (token[0] === '\\' && token.length > 1) return this.command(token.slice(1).replace(/\*$/, ''));
    if (token === '{') {
      const list = this.row(t => t === '}');
      this.want('}');
      return row(list);
    }
    if (/^\d/.test(token)) return node('mn', {}, token);
    if (/^\p{L}/u.test(token)) return node('mi', {}, token);
    if (token === '~') return node('mspace', {width: '0.333em'});
    if (token === '^' || token === '_' || token === '$' || token === '#' || token === '%' || token === '\\') throw new Unknown(token);
    return node('mo', '()[]|/'.includes(token) ? {stretchy: 'false'} : {}, token === '-' ? '−' : token === '*' ? '∗' : token);
  }

  command(name) {
    if (letters.has(name)) return node('mi', {}, letters.get(name));
    if (operators.has(name)) return node('mo', {stretchy: 'false'}, operators.get(name));
    if (functions.has(name)) return node('mi', {}, name);
    if (large.has(name)) return Object.assign(node('mo', {}, large.get(name)), {limits: 'block'});
    if (integrals.has(name)) return node('mo', {}, integrals.get(name));
    if (limits.has(name)) return Object.assign(node('mi', {}, limits.get(name)), {limits: 'block'});
    if (name in spaces) return node('mspace', {width: spaces[name].toFixed(3) + 'em'});
    if (ignored.has(name)) return null;
    if (sizes.test(name)) return node('mo', {stretchy: 'false'}, this.delimiter());
    if (accents.has(name)) return Object.assign(node('mover', {accent: 'true'}, this.argument(), node('mo', {}, accents.get(name))), {limits: name === 'overbrace' && 'always'});
    if (below.has(name)) return Object.assign(node('munder', {}, this.argument(), node('mo', {}, below.get(name))), {limits: name === 'underbrace' && 'always'});
    if (name in alphabets) return this.alphabet(name);
    if (/^[{}%$#&_]$/.test(name)) return node('mo', {stretchy: 'false'}, name);
    if (name === '|') return node('mo', {stretchy: 'false'}, '‖');
    return this.structure(name);
  }

  structure(name) {
    switch (name) {
    case 'frac': case 'dfrac': case 'tfrac': case 'cfrac':
      return node('mfrac', {}, this.argument(), this.argument());
    case 'binom': case 'dbinom': case 'tbinom':
      return node('mrow', {}, ...fence('('), node('mfrac', {linethickness: '0'}, this.argument(), this.argument()), ...fence(')'));
    case 'sqrt': return this.root();
    case 'text': case 'textrm': case 'textbf': case 'textit': case 'mbox': case 'texttt': case 'textsf':
      return node('mtext', {}, this.raw().replace(/^ | $/g, '\u00a0'));
    case 'mathrm': case 'operatorname': case 'mathit': {
      const text = this.raw();
      if (/[\\^_{]/.test(text)) throw new Unknown(text);
      return node('mi', {mathvariant: 'normal'}, text);
    }
    case 'left': return this.fenced();
    case 'begin': return this.environment();
    case 'overset': case 'stackrel': { const over = this.argument(); return node('mover', {}, this.argument(), over); }
    case 'underset': { const under = this.argument(); return node('munder', {}, this.argument(), under); }
    case 'not': { const e = this.argument(); e.append('\u0338'); return e; }
    case 'boxed': return this.argument();
    case 'bmod': case 'mod': return node('mo', {}, 'mod');
    case 'pmod': return node('mrow', {}, node('mspace', {width: '0.444em'}), node('mo', {}, '('), node('mi', {}, 'mod'), node('mspace', {width: '0.333em'}), this.argument(), node('mo', {}, ')'));
    }
    throw new Unknown(name);
  }

  alphabet(name) {
    const text = this.peek() === '{' ? this.raw() : this.next(), [A, a, zero] = alphabets[name];
    if (letters.has(text.slice(1)) && text[0] === '\\') return node('mi', {}, letters.get(text.slice(1)));
    if (!/^[A-Za-z0-9]+$/.test(text)) throw new Unknown(text);
    const known = older[name] || '';
    let out = '';
    for (const c of text) {
      const i = known.indexOf(c), code = c.charCodeAt(0);
      out += i >= 0 ? known[i + 1] : c <= '9' ? (zero ? String.fromCodePoint(zero + code - 48) : c) : String.fromCodePoint(c <= 'Z' ? A + code - 65 : a + code - 97);
    }
    return node('mi', {}, out);
  }

  root() {
    if (!this.skip('[')) return node('msqrt', {}, this.argument());
    const index = row(this.row(t => t === ']'));
    this.want(']');
    return node('mroot', {}, this.argument(), index);
  }

  /** delimiter reads the fence of \left, \right or \big; "." is none. */
  delimiter() {
    const token = this.next(), name = token.slice(1);
    if (token === '.') return '';
    if (token === '\\|') return '‖';
    if (token === '<' || token === '>') return token === '<' ? '⟨' : '⟩';
    if (token === '\\{' || token === '\\}') return name;
    if (/^[()[\]|/]$/.test(token)) return token;
    if (token[0] === '\\' && operators.has(name)) return operators.get(name);
    throw new Unknown(token);
  }

  fenced() {
    const open = this.delimiter(), list = [];
    for (;;) {
      list.push(...this.row(t => t === '\\right' || t === '\\middle'));
      if (this.next() === '\\right') break;
      list.push(...fence(this.delimiter()));
    }
    return node('mrow', {}, ...fence(open), ...list, ...fence(this.delimiter()));
  }

  environment() {
    const name = this.raw().replace(/\*$/, ''), ends = t => t === '&' || t === '\\\\' || t === '\\end';
    if (!(name in fences)) throw new Unknown(name);
    if (name === 'array' || name === 'alignat') this.raw();
    const rows = [[]];
    for (;;) {
      rows.at(-1).push(node('mtd', {}, ...this.row(ends)));
      const token = this.next();
      if (token === '\\end') break;
      if (token === '\\\\') {
        if (this.skip('[')) while (this.next() !== ']');
        rows.push([]);
      }
    }
    if (this.raw().replace(/\*$/, '') !== name) throw new Unknown(name);
    const last = rows.at(-1);
    if (last.length === 1 && !last[0].childNodes.length) rows.pop();
    const table = node('mtable', {class: looks[name] || 'matrix'}, ...rows.map(cells => node('mtr', {}, ...cells))), [open, close] = fences[name];
    return open || close ? node('mrow', {}, ...fence(open), table, ...fence(close)) : table;
  }
}
