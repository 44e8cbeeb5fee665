package api_test

import (
	"context"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// TestPageALongTextRemovedAllConversations: a conversation that is larger than the browser's storage made room
// for itself by deleting all others, and was lost too, without a word.
func TestPageALongTextRemovedAllConversations(t *testing.T) {
	tab := browser(t)
	openPage(t, tab, speaking(t, "Yes.", 0))
	askPage(t, tab, "One?")
	shows(t, tab, `byId('new').click(), 'new'`)
	shows(t, tab, `byId('text').value = 'a'.repeat(4100000), byId('send').click(), 'sent'`)
	warning := shows(t, tab, `!byId('unkept').hidden && !document.querySelector('.busy') && byId('unkept').textContent`)
	if !strings.Contains(warning, "export it") {
		t.Errorf("the page says %q", warning)
	}
	sameText(t, "the list", shows(t, tab, `[...document.querySelectorAll('#list .title')].map(e => e.textContent).join()`), "One?")
	shows(t, tab, `byId('new').click(), 'new'`)
	sameText(t, "the warning of a new conversation", shows(t, tab, `'hidden ' + byId('unkept').hidden`), "hidden true")
}

// TestPageWithoutStorageStayedEmpty: where the browser forbids storage, reading it is an error, and the page had no
// models and sent nothing.
func TestPageWithoutStorageStayedEmpty(t *testing.T) {
	tab := browser(t)
	forbid := func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, target, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `
			for (const name of ['localStorage', 'sessionStorage'])
				Object.defineProperty(window, name, {get() { throw new DOMException('denied', 'SecurityError'); }});`})
		return chromedp.Void{}, err
	}
	if err := chromedp.Do(tab, forbid); err != nil {
		t.Fatal(err)
	}
	openPage(t, tab, speaking(t, "Yes.", 0))
	askPage(t, tab, "One?")
	sameText(t, "the conversation", shows(t, tab, shownTurns), "turn user: One?; turn assistant: Yes.")
	shows(t, tab, `byId('theme').click(), byId('where').textContent.includes('until the page is closed') && 'said'`)
	shows(t, tab, `document.documentElement.dataset.theme === 'light' && 'light'`)
}
