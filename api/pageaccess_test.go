package api_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/heftai/heft/dispatch"
)

// reachable are the elements that the keyboard must reach now, and those of them without a name.
const reachable = `(() => {
	const shown = e => e.checkVisibility({visibilityProperty: true, opacityProperty: false}) && !e.disabled && e.tabIndex >= 0;
	const list = [...document.querySelectorAll('button, select, input, textarea, a[href], summary, [tabindex]')].filter(shown);
	const named = e => e.getAttribute('aria-label') || e.labels?.[0]?.textContent.trim() || e.getAttribute('aria-labelledby') || e.textContent.trim() || e.title;
	window.targets = list;
	return 'n' + list.length + ' ' + list.filter(e => !named(e)).map(e => e.outerHTML).join();
})()`

// TestPageIsUsableWithTheKeyboard: Tab reaches every element, each has a name and shows that it has the
// focus; arrows move between tabs.
func TestPageIsUsableWithTheKeyboard(t *testing.T) {
	tab := browser(t)
	openPage(t, tab, speaking(t, withCode, 0))
	askPage(t, tab, "Show me")
	shows(t, tab, `document.activeElement.blur(), window.scrollTo(0, 0), 'from the start'`)
	var n int
	var nameless string
	if _, err := fmt.Sscanf(shows(t, tab, reachable), "n%d %s", &n, &nameless); n < 15 || nameless != "" {
		t.Fatalf("%d elements are reachable, without a name: %q (%v)", n, nameless, err)
	}
	shows(t, tab, `window.seen = new Set(), window.dull = [], 'ready'`)
	for range n + 5 {
		if err := chromedp.Do(tab, chromedp.KeyEvent("\t")); err != nil {
			t.Fatal(err)
		}
		shows(t, tab, `(() => { const e = document.activeElement; seen.add(e);
			const ring = x => x && getComputedStyle(x).outlineStyle !== 'none';
			if (e !== document.body && !ring(e) && e.id !== 'text') dull.push(e.outerHTML);
			return 'seen'; })()`)
	}
	sameText(t, "elements that Tab does not reach", shows(t, tab, `'missed: ' + targets.filter(e => !seen.has(e)).map(e => e.outerHTML).join()`), "missed:")
	sameText(t, "elements that do not show the focus", shows(t, tab, `'dull: ' + dull.join()`), "dull:")
	shows(t, tab, `byId('tab-map').focus(), 'on the tabs'`)
	if err := chromedp.Do(tab, chromedp.KeyEvent(kb.ArrowRight)); err != nil {
		t.Fatal(err)
	}
	shows(t, tab, `document.activeElement.id === 'tab-settings' && byId('pane-map').hidden && !byId('pane-settings').hidden && 'the other tab'`)
}

// TestPageSpeaksOncePerAnswer: a screen reader hears that an answer begins, and the answer when it is
// whole, not each of its tokens.
func TestPageSpeaksOncePerAnswer(t *testing.T) {
	tab := browser(t)
	openPage(t, tab, speaking(t, "One two three four five six seven eight nine ten.", 5*time.Millisecond))
	shows(t, tab, `window.said = [], new MutationObserver(() => said.push(byId('say').textContent)).observe(byId('say'), {childList: true, characterData: true, subtree: true}), 'listening'`)
	askPage(t, tab, "Count")
	sameText(t, "what is said", shows(t, tab, `said.length >= 2 && said.join(' | ')`), "Answering | Answer: One two three four five six seven eight nine ten.")
	sameText(t, "live regions", shows(t, tab, `[...document.querySelectorAll('[aria-live], [role=status], [role=alert], [role=log]')].filter(e => !e.hidden).map(e => e.id).join()`), "state,say")
	shows(t, tab, `document.querySelector('.turn.assistant').getAttribute('aria-busy') === 'false' && 'whole'`)
}

// TestPageFitsAPhone: nothing is wider than the screen, and both drawers open, close and give the focus
// back.
func TestPageFitsAPhone(t *testing.T) {
	tab := browser(t)
	if err := chromedp.Do(tab, chromedp.EmulateViewport(360, 740)); err != nil {
		t.Fatal(err)
	}
	openPage(t, tab, serveBound(t, dispatch.Options{}))
	askPage(t, tab, "What is a token? "+strings.Repeat("long", 60))
	wide := `'wide: ' + [...document.querySelectorAll('header, header *, main, main *')].filter(e => e.checkVisibility({visibilityProperty: true}) &&
		!e.closest('.scroll, pre, .hidden, .skip, option') && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80)).join()`
	sameText(t, "what is too wide", shows(t, tab, wide), "wide:")
	for opener, drawer := range map[string]string{"open-chats": "chats", "open-panel": "panel"} {
		shows(t, tab, `byId('`+opener+`').click(), byId('`+drawer+`').contains(document.activeElement) && byId('`+opener+`').ariaExpanded === 'true' && 'open'`)
		if err := chromedp.Do(tab, chromedp.KeyEvent("\x1b")); err != nil {
			t.Fatal(err)
		}
		shows(t, tab, `!byId('`+drawer+`').checkVisibility({visibilityProperty: true}) && document.activeElement.id === '`+opener+`' && 'closed'`)
	}
}

// TestPageIsDarkAndLight: it follows the system unless the user chooses, and its texts have contrast in
// both.
func TestPageIsDarkAndLight(t *testing.T) {
	tab := browser(t)
	openPage(t, tab, speaking(t, "Yes.", 0))
	system := func(scheme string) {
		t.Helper()
		action := func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
			_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
			return chromedp.Void{}, err
		}
		if err := chromedp.Do(tab, action); err != nil {
			t.Fatal(err)
		}
	}
	const light = `(() => { const l = c => { const v = c.match(/[\d.]+/g).slice(0, 3).map(x => (x /= 255) <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4); return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
		window.contrast = (a, b) => { const [x, y] = [l(a), l(b)].sort((p, q) => q - p); return (x + .05) / (y + .05); };
		return l(getComputedStyle(document.body).backgroundColor) > .5 ? 'light' : 'dark'; })()`
	for _, step := range []struct{ system, click, want string }{{"light", "", "light"}, {"dark", "", "dark"}, {"dark", "1", "light"}, {"light", "1", "dark"}, {"light", "1", "light"}} {
		system(step.system)
		if step.click != "" {
			shows(t, tab, `byId('theme').click(), 'clicked'`)
		}
		sameText(t, fmt.Sprintf("%+v", step), shows(t, tab, light), step.want)
		low := shows(t, tab, `'low: ' + [['body', 'color', 'body'], ['.hint', 'color', 'body'], ['#title', 'color', 'body'], ['#state', 'color', 'header']]
			.map(([e, p, on]) => [e, contrast(getComputedStyle(document.querySelector(e))[p], getComputedStyle(document.querySelector(on)).backgroundColor)]).filter(([, c]) => c < 4.5).join()`)
		sameText(t, "texts of low contrast", low, "low:")
	}
}
