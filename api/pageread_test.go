package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// TestPageLeavesTheReaderWhereHeIs: the end of an answer jumped to its end and folded the reasoning, for those who
// had scrolled up or opened it. Code that streamed in lost its scroll position with every token.
func TestPageLeavesTheReaderWhereHeIs(t *testing.T) {
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
func TestPageShowsFormulasAndTasks(t *testing.T) {
	tab := browser(t)
	openPage(t, tab, speaking(t, "Yes.", 0))
	shows(t, tab, `import('/page/markdown.js').then(m => { window.markdown = m; }), window.markdown && 'imported'`)
	for text, want := range map[string]string{
		`\\(a_1 * b_2 * c\\, d\\)`:          `<p><code>\(a_1 * b_2 * c\, d\)</code></p>`,
		`so $x_1 * y_1 * z$.`:               `<p>so <code>$x_1 * y_1 * z$</code>.</p>`,
		`$$\\frac{1}{2}$$ and \\[x\\]`:      `<p><code>$$\frac{1}{2}$$</code> and <code>\[x\]</code></p>`,
		`It costs $5 and $6, or US$7-$8.`:   `<p>It costs $5 and $6, or US$7-$8.</p>`,
		`\\* and \\$5 and \\$6`:             `<p>* and $5 and $6</p>`,
		`- [ ] one\n- [x] two\n- [y] three`: "<ul>\n<li>☐ one</li>\n<li>☑ two</li>\n<li>[y] three</li>\n</ul>",
		"`$a$` \\\\( alone":                 `<p><code>$a$</code> ( alone</p>`,
	} {
		got := shows(t, tab, `(() => { const d = document.createElement('div'); d.append(markdown.render("`+text+`")); return d.innerHTML; })()`)
		sameText(t, text, got, want)
	}
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

// TestPageDrawersKeepTheFocus: Tab left an open drawer for what it covers.
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
