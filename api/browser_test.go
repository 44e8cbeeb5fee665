package api_test

import (
	"context"
	"os/exec"
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
	"github.com/heftai/heft/internal/testenv"
)

// browser opens a tab of a headless Chromium that reaches the loopback only.
func browser(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	testenv.Need(t, "chromium", err == nil, "install chromium")
	allocator, cancel := chromedp.NewExecAllocator(context.Background(),
		chromedp.ExecPath(path), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.UserDataDir(t.TempDir()), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true))
	t.Cleanup(cancel)
	tab, closeTab := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		_ = chromedp.Cancel(tab) // waits for the browser to end
		closeTab()
	})
	return tab
}

// TestPageChatsInABrowser uses the page as a person would: it says something, reads the
// answer as it comes, and looks at where the model lives. The page's strict content policy
// is in force.
func TestPageChatsInABrowser(t *testing.T) {
	tab := browser(t)
	model, bound, plan := generatetest.Demo(t, engine.Options{})
	s := serveWith(t, api.Options{Models: []*generate.Model{model}, Status: bound.Status,
		Plan: func() any { return dispatch.NewReport(plan) }})
	if err := chromedp.Do(tab, chromedp.Navigate(s.URL+"/")); err != nil {
		t.Fatal(err)
	}
	blocks := shows(t, tab, `document.querySelectorAll('#blocks li').length > 3 && document.getElementById('blocks').innerText`)
	if !strings.Contains(blocks, "model.layers.3") || !strings.Contains(blocks, "Memory") {
		t.Errorf("the blocks read %q", blocks)
	}
	// "\r" is Enter, which sends.
	if err := chromedp.Do(tab, chromedp.SendKeys("#text", "What is a token?\r")); err != nil {
		t.Fatal(err)
	}
	log := shows(t, tab, `document.querySelectorAll('#log > *').length >= 2 && document.getElementById('stop').hidden && document.getElementById('log').innerText`)
	_, answer, asked := strings.Cut(log, "What is a token?")
	if !asked || len(strings.TrimSpace(answer)) < 10 {
		t.Errorf("the conversation reads %q", log)
	}
	if err := chromedp.Do(tab, chromedp.Reload()); err != nil {
		t.Fatal(err)
	}
	if again := shows(t, tab, `document.querySelectorAll('.turn.assistant').length === 1 && document.getElementById('log').innerText`); !strings.Contains(again, "What is a token?") {
		t.Errorf("after a reload the conversation reads %q", again)
	}
}

// TestPageOffersAdapters: with several models the page asks the one that was chosen.
func TestPageOffersAdapters(t *testing.T) {
	tab := browser(t)
	base := generatetest.Speaking(t, generatetest.Speaker{Template: hermesTemplate, Says: "I am the base."}, engine.Options{})
	other := generatetest.Speaking(t, generatetest.Speaker{Template: hermesTemplate, Says: "I am the other."}, engine.Options{})
	other.Name = "other"
	s := serveWith(t, api.Options{Models: []*generate.Model{base, other}})
	if err := chromedp.Do(tab, chromedp.Navigate(s.URL+"/")); err != nil {
		t.Fatal(err)
	}
	shows(t, tab, `document.querySelectorAll('#model option').length === 2 && 'both'`)
	shows(t, tab, `$('model').value = 'other', $('model').onchange(), 'chosen'`)
	if err := chromedp.Do(tab, chromedp.SendKeys("#text", "Who?\r")); err != nil {
		t.Fatal(err)
	}
	if log := shows(t, tab, `document.querySelector('.note') && document.getElementById('log').innerText`); !strings.Contains(log, "I am the other.") {
		t.Errorf("the conversation reads %q", log)
	}
}

// TestPageShowsThoughts: reasoning stands before the answer, and is no part of it.
func TestPageShowsThoughts(t *testing.T) {
	tab := browser(t)
	model := generatetest.Speaking(t, generatetest.Speaker{Template: hermesTemplate, Says: "<think>Let me see.</think>Four."}, engine.Options{})
	s := serve(t, model)
	if err := chromedp.Do(tab, chromedp.Navigate(s.URL+"/"), chromedp.SendKeys("#text", "2+2?\r")); err != nil {
		t.Fatal(err)
	}
	shows(t, tab, `document.querySelector('.note') && 'done'`)
	turns := shows(t, tab, `[...document.querySelectorAll('.turn')].map(e => e.className + ': ' + e.textContent).join('; ')`)
	if want := "turn user: 2+2?; turn thought: Let me see.; turn assistant: Four."; turns != want {
		t.Errorf("the turns are %q, want %q", turns, want)
	}
	if said := shows(t, tab, `JSON.stringify(messages)`); strings.Contains(said, "Let me see") {
		t.Errorf("the page goes on with %s", said)
	}
}

// TestPageSaysThatAModelHasNoChatTemplate: one typed a message first, and got an error.
func TestPageSaysThatAModelHasNoChatTemplate(t *testing.T) {
	tab := browser(t)
	mute := generatetest.Fake(t, &enginetest.Model{}, engine.Options{})
	other := generatetest.Speaking(t, generatetest.Speaker{Template: hermesTemplate, Says: "I can."}, engine.Options{})
	other.Name = "other"
	s := serveWith(t, api.Options{Models: []*generate.Model{mute, other}})
	if err := chromedp.Do(tab, chromedp.Navigate(s.URL+"/")); err != nil {
		t.Fatal(err)
	}
	if why := shows(t, tab, `!$('nochat').hidden && $('text').disabled && $('send').disabled && $('nochat').textContent`); !strings.Contains(why, "no chat") {
		t.Errorf("the page says %q", why)
	}
	shows(t, tab, `$('model').value = 'other', $('model').onchange(), $('nochat').hidden && !$('text').disabled && !$('send').disabled && 'ready'`)
}

// shows waits until a script in the page gives a text. It asks again and again, as the page's
// policy forbids the polling that would run inside it.
func shows(t *testing.T, tab context.Context, script string) string {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		v, err := chromedp.Run(tab, chromedp.Evaluate[any](script))
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := v.(string); ok && text != "" {
			return text
		}
	}
	t.Fatalf("the page never shows %s", script)
	return ""
}
