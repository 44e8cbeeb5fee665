package api_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
)

// recordRequests keeps the bodies of requests in sent, and copied and exported texts.
const recordRequests = `window.sent = []; window.copied = []; window.exported = [];
(f => { window.fetch = (url, o) => { if (o?.body) sent.push(JSON.parse(o.body)); return f(url, o); }; })(fetch);
navigator.clipboard.writeText = async t => { copied.push(t); };
(f => { URL.createObjectURL = b => { b.text().then(t => exported.push(t)); return f.call(URL, b); }; })(URL.createObjectURL);
'recording'`

// shownTurns lists the messages on the page.
const shownTurns = `[...document.querySelectorAll('.turn')].map(e => e.className + ': ' + e.querySelector('.bubble, :scope > .prose').textContent.trim()).join('; ')`

// TestPageChatsInABrowser uses the page as a person would: it says something, reads the answer as it
// comes, and looks at where the model's weights are. The conversation outlives a reload.
func TestPageChatsInABrowser(t *testing.T) {
	tab := browser(t)
	s := serveBound(t, dispatch.Options{})
	openPage(t, tab, s)
	rows := shows(t, tab, `document.querySelectorAll('.tile').length > 5 && byId('rows').textContent`)
	if !strings.Contains(rows, "model.layers.3") || !strings.Contains(rows, "Memory") {
		t.Errorf("the blocks read %q", rows)
	}
	askPage(t, tab, "What is a token?")
	before := shows(t, tab, shownTurns)
	if _, answer, ok := strings.Cut(before, "turn user: What is a token?; turn assistant: "); !ok || len(answer) < 10 {
		t.Errorf("the conversation reads %q", before)
	}
	openPage(t, tab, s)
	if after := shows(t, tab, shownTurns); after != before {
		t.Errorf("after a reload the conversation reads %q, want %q", after, before)
	}
}

// TestPageBelowAPrefix: behind a reverse proxy that serves it at /llm/, the page asked for its files and for the API at
// the top of the host.
func TestPageBelowAPrefix(t *testing.T) {
	s := speaking(t, "I am below.", 0)
	to, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux() // paths without the prefix are a 404
	mux.Handle("/llm/", http.StripPrefix("/llm", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, FlushInterval: -1}))
	proxy := httptest.NewServer(mux)
	t.Cleanup(proxy.Close)
	t.Cleanup(proxy.CloseClientConnections) // first: the page's stream of activity does not end
	for _, file := range []string{"/llm/", "/llm/page/main.js", "/llm/page/base.css"} {
		resp, err := s.Client().Get(proxy.URL + file)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: got status %d, want 200", file, resp.StatusCode)
		}
	}
	tab := browser(t)
	openPage(t, tab, &server{Server: &httptest.Server{URL: proxy.URL + "/llm"}})
	shows(t, tab, `getComputedStyle(document.body).margin === '0px' && 'styled'`)
	askPage(t, tab, "Where?")
	sameText(t, "the conversation", shows(t, tab, shownTurns), "turn user: Where?; turn assistant: I am below.")
}

// TestPageAsksTheChosenModel: with several models, the one that was chosen answers.
func TestPageAsksTheChosenModel(t *testing.T) {
	tab := browser(t)
	base := generatetest.Speaking(t, generatetest.Speaker{Template: hermesTemplate, Says: "I am the base."}, engine.Options{})
	other := generatetest.Speaking(t, generatetest.Speaker{Template: hermesTemplate, Says: "I am the other."}, engine.Options{})
	other.Name = "other"
	openPage(t, tab, serveWith(t, api.Options{Models: []*generate.Model{base, other}}))
	shows(t, tab, `document.querySelectorAll('#model option').length === 2 && 'both'`)
	shows(t, tab, `byId('model').value = 'other', byId('model').dispatchEvent(new Event('change')), 'chosen'`)
	askPage(t, tab, "Who?")
	sameText(t, "the conversation", shows(t, tab, shownTurns), "turn user: Who?; turn assistant: I am the other.")
}

// TestPageFoldsReasoning: it is folded, stands before the answer, and is not sent back.
func TestPageFoldsReasoning(t *testing.T) {
	tab := browser(t)
	openPage(t, tab, speaking(t, "<think>Let me see.</think>Four.", 0))
	shows(t, tab, recordRequests)
	askPage(t, tab, "2+2?")
	sameText(t, "the conversation", shows(t, tab, shownTurns), "turn user: 2+2?; turn assistant: Four.")
	sameText(t, "the reasoning", shows(t, tab, `!document.querySelector('.thought').open && document.querySelector('.thought .prose').textContent`), "Let me see.")
	askPage(t, tab, "Sure?")
	if said := shows(t, tab, `JSON.stringify(sent[1].messages)`); strings.Contains(said, "Let me see") || !strings.Contains(said, "Four.") {
		t.Errorf("the page goes on with %s", said)
	}
}

// TestPageSaysThatAModelHasNoChatTemplate: one typed a message first, and got an error.
func TestPageSaysThatAModelHasNoChatTemplate(t *testing.T) {
	tab := browser(t)
	mute := generatetest.Fake(t, &enginetest.Model{}, engine.Options{})
	other := generatetest.Speaking(t, generatetest.Speaker{Template: hermesTemplate, Says: "I can."}, engine.Options{})
	other.Name = "other"
	openPage(t, tab, serveWith(t, api.Options{Models: []*generate.Model{mute, other}}))
	if why := shows(t, tab, `!byId('nochat').hidden && byId('text').disabled && byId('send').disabled && byId('nochat').textContent`); !strings.Contains(why, "no chat") {
		t.Errorf("the page says %q", why)
	}
	shows(t, tab, `byId('model').value = 'other', byId('model').dispatchEvent(new Event('change')), byId('nochat').hidden && !byId('text').disabled && !byId('send').disabled && 'ready'`)
}

// TestPageEditsAndRegenerates: an edited message replaces what followed it, and an answer is replaced by
// another one.
func TestPageEditsAndRegenerates(t *testing.T) {
	tab := browser(t)
	openPage(t, tab, speaking(t, "Yes.", 0))
	shows(t, tab, recordRequests)
	askPage(t, tab, "First?")
	askPage(t, tab, "Second?")
	shows(t, tab, `document.querySelector('.turn.user [aria-label="Edit message"]').click(), document.activeElement.className`)
	shows(t, tab, `document.activeElement.value = 'Better?', document.querySelector('.editing .row button:last-child').click(), 'sent'`)
	shows(t, tab, `!document.querySelector('.busy') && document.querySelectorAll('.turn').length === 2 && 'answered'`)
	sameText(t, "after the edit", shows(t, tab, shownTurns), "turn user: Better?; turn assistant: Yes.")
	shows(t, tab, `document.querySelector('[aria-label="Regenerate answer"]').click(), 'again'`)
	shows(t, tab, `!document.querySelector('.busy') && sent.length === 4 && 'answered'`)
	sameText(t, "after regenerating", shows(t, tab, shownTurns), "turn user: Better?; turn assistant: Yes.")
	sameText(t, "the last request", shows(t, tab, `JSON.stringify(sent[3].messages)`), `[{"role":"user","content":"Better?"}]`)
}

// TestPageStopsWithEscape: the part that was answered stays, and the next message is answered.
func TestPageStopsWithEscape(t *testing.T) {
	tab := browser(t)
	openPage(t, tab, speaking(t, strings.Repeat("and on ", 400), 20*time.Millisecond))
	typeIn(t, tab, "Tell me.\r")
	shows(t, tab, `document.querySelector('.busy .prose')?.textContent.includes('and on') && !byId('stop').hidden && 'answering'`)
	if err := chromedp.Do(tab, chromedp.SendKeys("#text", "\x1b")); err != nil {
		t.Fatal(err)
	}
	shows(t, tab, `document.querySelector('.turn.assistant .note')?.textContent === 'stopped' && byId('stop').hidden && 'stopped'`)
	if kept := shows(t, tab, shownTurns); !strings.Contains(kept, "and on") {
		t.Errorf("the conversation reads %q", kept)
	}
}

// TestPageKeepsSeveralConversations: each with its messages and settings; the oldest leave.
func TestPageKeepsSeveralConversations(t *testing.T) {
	tab := browser(t)
	s := speaking(t, "Yes.", 0)
	openPage(t, tab, s)
	askPage(t, tab, "One?")
	shows(t, tab, `byId('new').click(), 'new'`)
	askPage(t, tab, "Two?")
	titles := `[...document.querySelectorAll('#list .title')].map(e => e.textContent).join()`
	sameText(t, "the list", shows(t, tab, titles), "Two?,One?")
	shows(t, tab, `document.querySelectorAll('#list .title')[1].click(), 'opened'`)
	sameText(t, "the first one", shows(t, tab, shownTurns), "turn user: One?; turn assistant: Yes.")
	shows(t, tab, `document.querySelector('#list [aria-label="Delete Two?"]').click(), 'deleted'`)
	sameText(t, "the list after deleting", shows(t, tab, titles), "One?")
	kept := shows(t, tab, `import('/page/store.js').then(s => {
		for (let i = 0; i < 105; i++) s.keep({id: 'x' + i, title: 't' + i, updated: i, messages: []});
		const big = {id: 'big', title: 'big', updated: 1e15, messages: [{role: 'user', content: 'a'.repeat(3997000)}]};
		window.kept = s.all().length + ' ' + s.all().some(c => c.id === 'x0') + ' ' + s.keep(big) + ' ' + s.all().some(c => c.id === 'big') + ' ' + (s.all().length < 100);
	}), window.kept`)
	sameText(t, "what is kept", kept, "100 false true true true")
}

// TestPageSendsSettings: the system prompt and the fields that are filled in, for this conversation and
// the next.
func TestPageSendsSettings(t *testing.T) {
	tab := browser(t)
	openPage(t, tab, speaking(t, "Yes.", 0))
	shows(t, tab, recordRequests)
	shows(t, tab, `(() => { for (const [q, v] of [['#system', 'Be brief.'], ['[name=temperature]', '0.5'], ['[name=top_k]', '7'], ['[name=min_p]', '9'], ['#stop-strings', 'END\n\n']]) {
		const e = document.querySelector(q); e.value = v; e.dispatchEvent(new Event('input', {bubbles: true})); } return 'set'; })()`)
	askPage(t, tab, "One?")
	var got map[string]any
	if err := json.Unmarshal([]byte(shows(t, tab, `JSON.stringify(sent[0])`)), &got); err != nil {
		t.Fatal(err)
	}
	if got["temperature"] != 0.5 || got["top_k"] != 7.0 || got["min_p"] != nil || at(got, "stop", 0) != "END" || at(got, "messages", 0, "content") != "Be brief." {
		t.Errorf("the request is %v", got) // min_p of 9 is not valid
	}
	shows(t, tab, `byId('new').click(), 'new'`)
	askPage(t, tab, "Two?")
	sameText(t, "the next conversation", shows(t, tab, `sent[1].temperature + ' ' + sent[1].messages[0].content`), "0.5 Be brief.")
}

const withCode = "Look:\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n```go\nx := 1\n```\n"

// TestPageCopiesAndExports: messages, code and tables to the clipboard, conversations to files.
func TestPageCopiesAndExports(t *testing.T) {
	tab := browser(t)
	openPage(t, tab, speaking(t, withCode, 0))
	shows(t, tab, recordRequests)
	askPage(t, tab, "Show me")
	if classes := shows(t, tab, `document.querySelector('.prose td:nth-child(2)').className`); classes != "to-right" {
		t.Errorf("the second column has the class %q", classes)
	}
	for _, name := range []string{"Copy message", "Copy table", "Copy code"} {
		shows(t, tab, `document.querySelector('.turn.assistant [aria-label="`+name+`"]').click(), 'copied'`)
	}
	want, err := json.Marshal([]string{withCode, "a\tb\n1\t2\n", "x := 1\n"})
	if err != nil {
		t.Fatal(err)
	}
	sameText(t, "the clipboard", shows(t, tab, `copied.length === 3 && JSON.stringify(copied)`), string(want))
	shows(t, tab, `byId('export-md').click(), byId('export-json').click(), 'exported'`)
	files := shows(t, tab, `exported.length === 2 && exported.sort().join('\x00')`)
	text, object, _ := strings.Cut(files, "\x00")
	if !strings.Contains(text, "## User\n\nShow me\n\n## Assistant\n\nLook:") {
		t.Errorf("exported %q", text)
	}
	var chat map[string]any
	if err := json.Unmarshal([]byte(object), &chat); err != nil || at(chat, "messages", 1, "content") != withCode {
		t.Errorf("exported %q: %v", object, err)
	}
}

// TestPageAsksForAKey: the dialog opens when the server wants a key, says when one is wrong, and the page
// works with the right one.
func TestPageAsksForAKey(t *testing.T) {
	tab := browser(t)
	model := generatetest.Speaking(t, generatetest.Speaker{Template: hermesTemplate, Says: "Yes."}, engine.Options{})
	s := serve(t, model, "secret")
	if err := chromedp.Do(tab, chromedp.Navigate(s.URL+"/")); err != nil {
		t.Fatal(err)
	}
	enter := func(key string) {
		t.Helper()
		shows(t, tab, `byId('key-dialog').open && document.activeElement.id === 'key' && 'asked'`)
		if err := chromedp.Do(tab, chromedp.SendKeys("#key", key+"\r")); err != nil {
			t.Fatal(err)
		}
	}
	enter("wrong")
	sameText(t, "the dialog", shows(t, tab, `byId('key-dialog').open && byId('key-why').textContent.includes('accept') && byId('key-why').textContent`), "The server does not accept this API key.")
	enter("secret")
	shows(t, tab, `!byId('key-dialog').open && !byId('model').hidden && 'open'`)
	askPage(t, tab, "Works?")
	sameText(t, "the conversation", shows(t, tab, shownTurns), "turn user: Works?; turn assistant: Yes.")
}

// TestPageShowsAnError: the page shows the server's message, and the question can be sent again.
func TestPageShowsAnError(t *testing.T) {
	tab := browser(t)
	openPage(t, tab, speaking(t, "Yes.", 0))
	shows(t, tab, `(() => { const e = document.querySelector('[name=max_tokens]'); e.value = 9999999; e.dispatchEvent(new Event('input', {bubbles: true})); return 'set'; })()`)
	typeIn(t, tab, "Hello\r")
	if why := shows(t, tab, `document.querySelector('.error[role=alert]')?.textContent`); !strings.Contains(why, "max") && !strings.Contains(why, "context") {
		t.Errorf("the page says %q", why)
	}
	shows(t, tab, `byId('settings').reset(), document.querySelector('[aria-label="Regenerate answer"]').click(), 'again'`)
	sameText(t, "the conversation", shows(t, tab, `!document.querySelector('.busy, .error') && `+shownTurns), "turn user: Hello; turn assistant: Yes.")
}

// noteLights keeps the blocks that were ever lit.
const noteLights = `window.lit = {runs: new Set(), reads: new Set()};
new MutationObserver(() => { for (const kind in lit) document.querySelectorAll('.tile').forEach((e, i) => e.classList.contains(kind) && lit[kind].add(i)); })
	.observe(byId('map'), {subtree: true, attributes: true}); 'noting'`

// TestPageLightsBlocks: all blocks are lit when they run, those on disk as streaming, and the rates and
// figures of the model show.
func TestPageLightsBlocks(t *testing.T) {
	tab := browser(t)
	openPage(t, tab, serveBound(t, dispatch.Options{DeviceMap: onDisk(t)}))
	shows(t, tab, `document.querySelectorAll('.tile').length === 7 && 'drawn'`)
	// The reports before a model was chosen count: an answer of one period is the difference to them.
	shows(t, tab, `import('/page/map.js').then(m => { const id = byId('model').value; m.choose('another'); m.choose(id); window.chosen = 'again'; }), window.chosen`)
	shows(t, tab, noteLights)
	shows(t, tab, `(() => { const e = document.querySelector('[name=max_tokens]'); e.value = 2; e.dispatchEvent(new Event('input', {bubbles: true})); return 'set'; })()`)
	askPage(t, tab, "What is a token?")
	shows(t, tab, `lit.runs.size === 7 && [...lit.reads].sort().join() === '2,4' && 'lit'`)
	shows(t, tab, `!document.querySelector('.tile.runs, .tile.reads') && 'dark again'`)
	if tiers := shows(t, tab, `byId('tiers').innerText`); !strings.Contains(tiers, "Memory") || !strings.Contains(tiers, "Disk") {
		t.Errorf("the tiers read %q", tiers)
	}
	if plan := shows(t, tab, `/Tokens per second\t\S+\t\d/.test(byId('plan').innerText) && byId('plan').innerText`); !strings.Contains(plan, "Disk per token") {
		t.Errorf("the plan reads %q", plan)
	}
	if label := shows(t, tab, `byId('map').getAttribute('aria-label')`); !strings.Contains(label, "7 blocks") || !strings.Contains(label, "2 with weights in disk") {
		t.Errorf("the map is called %q", label)
	}
}
