package api_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/generatetest"
)

// A front is an address behind which servers come and go.
type front struct {
	*server
	behind atomic.Pointer[server]
}

func newFront(t *testing.T, s *server) *front {
	t.Helper()
	f := &front{}
	f.behind.Store(s)
	proxy := &httputil.ReverseProxy{FlushInterval: -1, ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		Rewrite: func(r *httputil.ProxyRequest) {
			to, err := url.Parse(f.behind.Load().URL)
			if err != nil {
				t.Error(err)
			}
			r.SetURL(to)
		}}
	f.server = &server{Server: httptest.NewServer(proxy)}
	t.Cleanup(f.Close)
	t.Cleanup(f.CloseClientConnections) // first: the page's stream of activity does not end
	return f
}

// TestPageKnowsTheModelsOfARestartedServer: the page asked a server that was started again for the model that it had
// before, which was a 404 until one loaded the page again.
func TestPageKnowsTheModelsOfARestartedServer(t *testing.T) {
	tab := browser(t)
	f := newFront(t, speaking(t, "I am the first.", 0))
	openPage(t, tab, f.server)
	askPage(t, tab, "Who?")
	second := generatetest.Speaking(t, generatetest.Speaker{Template: hermesTemplate, Says: "I am the second."}, engine.Options{})
	second.Name = "second"
	f.behind.Store(serveWith(t, api.Options{Models: []*generate.Model{second}}))
	f.CloseClientConnections()
	shows(t, tab, `byId('model').value === 'second' && 'second'`)
	askPage(t, tab, "And now?")
	sameText(t, "the conversation", shows(t, tab, shownTurns),
		"turn user: Who?; turn assistant: I am the first.; turn user: And now?; turn assistant: I am the second.")
}

// TestPageNamesALostConnection: an answer that broke off said "network error", and a server that is down "Failed to
// fetch", as the browser does.
func TestPageNamesALostConnection(t *testing.T) {
	tab := browser(t)
	f := newFront(t, speaking(t, strings.Repeat("and on ", 400), 20*time.Millisecond))
	openPage(t, tab, f.server)
	typeIn(t, tab, "Tell me.\r")
	shows(t, tab, `document.querySelector('.busy .prose')?.textContent.includes('and on') && 'answering'`)
	f.CloseClientConnections()
	sameText(t, "the error", shows(t, tab, `document.querySelector('.error')?.textContent`), "The connection was lost.")
	f.Close()
	typeIn(t, tab, "Again.\r")
	sameText(t, "the error", shows(t, tab, `document.querySelectorAll('.error')[1]?.textContent`), "The server cannot be reached.")
}

// TestPageKeepsThePartOfAnAnswer: a page that was closed or loaded again while an answer streamed lost the first part.
func TestPageKeepsThePartOfAnAnswer(t *testing.T) {
	tab := browser(t)
	s := speaking(t, strings.Repeat("and on ", 400), 20*time.Millisecond)
	openPage(t, tab, s)
	typeIn(t, tab, "Tell me.\r")
	shows(t, tab, `document.querySelector('.busy .prose')?.textContent.includes('and on') && 'answering'`)
	openPage(t, tab, s)
	shows(t, tab, `document.querySelector('.turn.assistant .prose')?.textContent.includes('and on') && document.querySelector('.note')?.textContent === 'stopped' && 'kept'`)
}

// TestPageShowsWhatOtherTabsSay: a tab that had the same conversation open kept its old state, and its next message
// overwrote the conversation of the other tab.
func TestPageShowsWhatOtherTabsSay(t *testing.T) {
	tab := browser(t)
	s := speaking(t, "Yes.", 0)
	openPage(t, tab, s)
	askPage(t, tab, "One?")
	other := anotherTab(t, tab)
	openPage(t, other, s)
	askPage(t, other, "Two?")
	both := "turn user: One?; turn assistant: Yes.; turn user: Two?; turn assistant: Yes."
	shows(t, tab, `(`+shownTurns+`) === '`+both+`' && 'both'`)
	askPage(t, tab, "Three?")
	shows(t, other, `(`+shownTurns+`) === '`+both+`; turn user: Three?; turn assistant: Yes.' && 'all'`)
}

// TestPageAnswersInTwoTabs: of two answers to one conversation in two tabs, the one that ended last replaced the other.
func TestPageAnswersInTwoTabs(t *testing.T) {
	tab := browser(t)
	openPage(t, tab, speaking(t, strings.Repeat("and on ", 400), 20*time.Millisecond))
	typeIn(t, tab, "Tell me.\r")
	shows(t, tab, `document.querySelector('.busy .prose')?.textContent.includes('and on') && 'answering'`)
	id := shows(t, tab, `Object.keys(localStorage).find(k => k.startsWith('heft.chat.'))`)
	// What another tab stores is an event here.
	shows(t, tab, `localStorage.setItem('`+id+`', JSON.stringify({id: '`+strings.TrimPrefix(id, "heft.chat.")+`', title: 'Other', updated: 1e15, messages: [{role: 'user', content: 'Other'}]})),
		window.dispatchEvent(new StorageEvent('storage', {key: '`+id+`'})), 'stored'`)
	if err := chromedp.Do(tab, chromedp.SendKeys("#text", "\x1b")); err != nil {
		t.Fatal(err)
	}
	sameText(t, "the list", shows(t, tab, `document.querySelectorAll('#list .title').length === 2 && [...document.querySelectorAll('#list .title')].map(e => e.textContent).sort().join()`), "Other,Tell me.")
}
