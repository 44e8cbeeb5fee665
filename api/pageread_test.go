package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// TestPageEndOfAnAnswerMovedTheReader: the end of an answer jumped to its end and folded the reasoning, for those who
// had scrolled up or opened it. Code that streamed in lost its scroll position with every token.
func TestPageEndOfAnAnswerMovedTheReader(t *testing.T) {
	tab := browser(t)
	code := "```\n" + strings.Repeat("and on\n", 70) + "```"
	openPage(t, tab, speaking(t, "<think>Hm.</think>"+code, 20*time.Millisecond))
	typeIn(t, tab, "Code?\r")
	shows(t, tab, `document.querySelector('.busy pre') && byId('log').scrollHeight - byId('log').clientHeight > 200 && (window.pre = document.querySelector('.busy pre'), window.shown = pre.textContent.length,
		document.querySelector('.thought').open = true, byId('log').scrollTop = 0, 'reading')`)
	shows(t, tab, `!document.querySelector('.busy') && document.querySelector('.turn.assistant .actions') && 'answered'`)
	sameText(t, "the code", shows(t, tab, `String(pre.isConnected && pre.textContent.length > shown)`), "true")
	sameText(t, "the reasoning", shows(t, tab, `String(document.querySelector('.thought').open)`), "true")
	sameText(t, "the scroll position", shows(t, tab, `'n' + byId('log').scrollTop`), "n0")
}

// TestPageShowsFormulasAndTasks: backslashes of formulas were lost, and their stars and underscores were emphasis.
// Formulas are MathML; those with TeX that the page does not know keep it.
func TestPageShowsFormulasAndTasks(t *testing.T) {
	tab := browser(t)
	openPage(t, tab, speaking(t, "Yes.", 0))
	shows(t, tab, `import('/page/markdown.js').then(m => { window.markdown = m; }), window.markdown && 'imported'`)
	for text, want := range map[string]string{
		`\\(\\odd{a_1 * b_2 * c\\, d}\\)`:   `<p><code>\(\odd{a_1 * b_2 * c\, d}\)</code></p>`,
		`so $x_1 * \\odd y_1 * z$.`:         `<p>so <code>$x_1 * \odd y_1 * z$</code>.</p>`,
		`$$\\frac{1}{2}$$ and \\[\\odd\\]`:  `<p>` + formula(true, `\frac{1}{2}`, `<mfrac><mn>1</mn><mn>2</mn></mfrac>`) + ` and <code>\[\odd\]</code></p>`,
		`It costs $5 and $6, or US$7-$8.`:   `<p>It costs $5 and $6, or US$7-$8.</p>`,
		`\\* and \\$5 and \\$6`:             `<p>* and $5 and $6</p>`,
		`- [ ] one\n- [x] two\n- [y] three`: "<ul>\n<li>☐ one</li>\n<li>☑ two</li>\n<li>[y] three</li>\n</ul>",
		"`$a$` \\\\( alone":                 `<p><code>$a$</code> ( alone</p>`,
	} {
		got := shows(t, tab, `(() => { const d = document.createElement('div'); d.append(markdown.render("`+text+`")); return d.innerHTML; })()`)
		sameText(t, text, got, want)
	}
}

// formula is the element of a formula.
func formula(block bool, tex, inner string) string {
	display := map[bool]string{true: "block", false: "inline"}[block]
	return `<math display="` + display + `"><semantics><mrow>` + inner + `</mrow><annotation encoding="application/x-tex">` + tex + `</annotation></semantics></math>`
}

// TestPageShowsFormulasAsMathML: formulas were shown as TeX.
func TestPageShowsFormulasAsMathML(t *testing.T) {
	tab := browser(t)
	openPage(t, tab, speaking(t, "Yes.", 0))
	shows(t, tab, `import('/page/math.js').then(m => { window.tex = m.math; }), window.tex && 'imported'`)
	for _, c := range []struct{ tex, want string }{
		{`x^2 + y_i`, `<msup><mi>x</mi><mn>2</mn></msup><mo>+</mo><msub><mi>y</mi><mi>i</mi></msub>`},
		{`x_1^23`, `<msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup><mn>3</mn>`},
		{`f''(a)`, `<msup><mi>f</mi><mo>′′</mo></msup><mo stretchy="false">(</mo><mi>a</mi><mo stretchy="false">)</mo>`},
		{`\frac12`, `<mfrac><mn>1</mn><mn>2</mn></mfrac>`},
		{`\sqrt[3]{\alpha - 1}`, `<mroot><mrow><mi>α</mi><mo>−</mo><mn>1</mn></mrow><mn>3</mn></mroot>`},
		{`\sum_{i=1}^n i`, `<munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover><mi>i</mi>`},
		{`\int_0^1 x\,dx`, `<msubsup><mo>∫</mo><mn>0</mn><mn>1</mn></msubsup><mi>x</mi><mspace width="0.167em"></mspace><mi>d</mi><mi>x</mi>`},
		{`\lim_{x \to 0} \sin x`, `<munder><mi>lim</mi><mrow><mi>x</mi><mo stretchy="false">→</mo><mn>0</mn></mrow></munder><mi>sin</mi><mi>x</mi>`},
		{`\begin{pmatrix} a & b \\ c & d \end{pmatrix}`, `<mrow><mo stretchy="true">(</mo><mtable class="matrix"><mtr><mtd><mi>a</mi></mtd><mtd><mi>b</mi></mtd></mtr>` +
			`<mtr><mtd><mi>c</mi></mtd><mtd><mi>d</mi></mtd></mtr></mtable><mo stretchy="true">)</mo></mrow>`},
		{`\begin{cases} 1 & x > 0 \\ \end{cases}`, `<mrow><mo stretchy="true">{</mo><mtable class="cases"><mtr><mtd><mn>1</mn></mtd><mtd><mi>x</mi><mo>&gt;</mo><mn>0</mn></mtd></mtr></mtable></mrow>`},
		{`\left( \frac{a}{b} \right]`, `<mrow><mo stretchy="true">(</mo><mfrac><mi>a</mi><mi>b</mi></mfrac><mo stretchy="true">]</mo></mrow>`},
		{`\mathbb{R}^n \in \mathcal{L}`, `<msup><mi>ℝ</mi><mi>n</mi></msup><mo stretchy="false">∈</mo><mi>ℒ</mi>`},
		{`\mathbf{v1} \cdot \hat{x}`, `<mi>𝐯𝟏</mi><mo stretchy="false">⋅</mo><mover accent="true"><mi>x</mi><mo>^</mo></mover>`},
		{`P = \{ x \mid \text{ if <b> } \}`, `<mi>P</mi><mo>=</mo><mo stretchy="false">{</mo><mi>x</mi><mo stretchy="false">∣</mo><mtext>&nbsp;if &lt;b&gt;&nbsp;</mtext><mo stretchy="false">}</mo>`},
		{`\operatorname{softmax}(QK^\top)`, `<mi mathvariant="normal">softmax</mi><mo stretchy="false">(</mo><mi>Q</mi><msup><mi>K</mi><mi>⊤</mi></msup><mo stretchy="false">)</mo>`},
		{`{n \choose k}`, ""}, {`\href{javascript:alert(1)}{x}`, ""}, {`a } b`, ""}, {`{a`, ""}, {`x_1_2`, ""}, {`\frac{1}`, ""}, {`\begin{pmatrix} a`, ""},
		{`\begin{b} a \end{b}`, ""}, {`a & b`, ""}, {``, ""}, {strings.Repeat(`{`, 60) + `a` + strings.Repeat(`}`, 60), ""}, {strings.Repeat("a+", 3000) + "a", ""},
		{`\begin{constructor} a \end{constructor}`, ""}, {`\constructor`, ""}, {`\__proto__`, ""}, {`\toString`, ""},
	} {
		got := shows(t, tab, `(m => m ? m.outerHTML : 'none')(tex(`+string(mustJSON(t, c.tex))+`, true))`)
		want := "none"
		if c.want != "" {
			want = formula(true, strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(c.tex), c.want)
		}
		sameText(t, c.tex, got, want)
	}
	sameText(t, "inline", shows(t, tab, `tex('\\sum_i', false).outerHTML`), formula(false, `\sum_i`, `<msub><mo>∑</mo><mi>i</mi></msub>`))
}

// TestPageTablesAreReadableOnAPhone: the columns of a wide table were as narrow as their words, so a row took the
// height of the screen.
func TestPageTablesAreReadableOnAPhone(t *testing.T) {
	tab := browser(t)
	if err := chromedp.Do(tab, chromedp.EmulateViewport(360, 740)); err != nil {
		t.Fatal(err)
	}
	openPage(t, tab, speaking(t, "| A | B | C |\n|---|---|---|\n| name of it | n log n | "+strings.Repeat("many words ", 8)+"|\n", 0))
	askPage(t, tab, "Compare.")
	shows(t, tab, `document.querySelector('td').getBoundingClientRect().height < 120 && document.querySelector('.scroll').scrollWidth > 360 && 'rows of few lines'`)
}

// TestPageDrawersKeepTheFocus: Tab moved the focus from an open drawer to elements below it.
func TestPageDrawersKeepTheFocus(t *testing.T) {
	tab := browser(t)
	if err := chromedp.Do(tab, chromedp.EmulateViewport(360, 740)); err != nil {
		t.Fatal(err)
	}
	openPage(t, tab, speaking(t, "Yes.", 0))
	inert := `'inert: ' + [...document.querySelectorAll('[inert]')].map(e => e.id || e.localName).join()`
	shows(t, tab, `byId('open-chats').click(), 'open'`)
	sameText(t, "what takes no focus", shows(t, tab, inert), "inert: header,main,panel")
	if err := chromedp.Do(tab, chromedp.EmulateViewport(1400, 900)); err != nil {
		t.Fatal(err)
	}
	shows(t, tab, `(`+inert+`) === 'inert: ' && byId('backdrop').hidden && 'a wide screen has no drawers'`)
}
