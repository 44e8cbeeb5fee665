package api_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/generatetest"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/meta"
)

// watchPage records in every document the actions that the page must never take.
const watchPage = `window.faults = [];
addEventListener('securitypolicyviolation', e => faults.push(e.violatedDirective + ' blocked ' + e.blockedURI + ' ' + e.sample));
addEventListener('error', e => faults.push('error: ' + e.message));
addEventListener('unhandledrejection', e => faults.push('rejected: ' + (e.reason?.stack || e.reason)));
window.byId = id => document.getElementById(id);`

// chromium starts a headless Chromium that reaches the loopback only. All tests share it, as its start takes seconds.
var chromium = sync.OnceValues(func() (context.Context, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "heft-chromium-")
	if err != nil {
		return nil, err
	}
	allocator, cancel := chromedp.NewExecAllocator(context.Background(),
		chromedp.ExecPath(path), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.UserDataDir(dir), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true))
	tab, closeTab := chromedp.NewContext(allocator)
	endChromium = func() error {
		err := chromedp.Cancel(tab) // waits for the browser to end
		closeTab()
		cancel()
		return errors.Join(err, os.RemoveAll(dir))
	}
	return tab, chromedp.Do(tab, chromedp.Navigate("about:blank"))
})

// endChromium ends the browser, if there is one.
var endChromium = func() error { return nil }

// browser opens a tab of Chromium that shares nothing with those of other tests. At the end of the test the
// page must have run without an error and without breaking its policy.
func browser(t *testing.T) context.Context {
	t.Helper()
	first, err := chromium()
	testenv.Need(t, "chromium", !errors.Is(err, exec.ErrNotFound), "install chromium")
	if err != nil {
		t.Fatal(err)
	}
	tab, closeTab := chromedp.NewContext(first, chromedp.WithNewBrowserContext())
	t.Cleanup(closeTab)
	watchTab(t, tab)
	return tab
}

// anotherTab opens one more tab of the browser.
func anotherTab(t *testing.T, tab context.Context) context.Context {
	t.Helper()
	other, closeTab := chromedp.NewContext(tab)
	t.Cleanup(closeTab)
	watchTab(t, other)
	return other
}

// watchTab fails the test at its end if the page in tab had an error or broke its policy.
func watchTab(t *testing.T, tab context.Context) {
	t.Helper()
	watch := func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, target, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: watchPage})
		return chromedp.Void{}, err
	}
	if err := chromedp.Do(tab, watch, chromedp.EmulateViewport(1400, 900)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		if faults := shows(t, tab, `'faults: ' + faults.join('; ')`); faults != "faults: " {
			t.Error(faults)
		}
	})
}

// openPage navigates tab to the page of s, and waits until the model is known.
func openPage(t *testing.T, tab context.Context, s *server) {
	t.Helper()
	if err := chromedp.Do(tab, chromedp.Navigate(s.URL+"/")); err != nil {
		t.Fatal(err)
	}
	shows(t, tab, `!byId('model').hidden && 'models'`)
}

// typeIn types into the field for messages. "\r" is Enter, which sends.
func typeIn(t *testing.T, tab context.Context, text string) {
	t.Helper()
	if err := chromedp.Do(tab, chromedp.SendKeys("#text", text)); err != nil {
		t.Fatal(err)
	}
}

// askPage sends a message and waits until it is answered.
func askPage(t *testing.T, tab context.Context, text string) {
	t.Helper()
	before := shows(t, tab, `'n' + document.querySelectorAll('.turn.assistant').length`)
	typeIn(t, tab, text+"\r")
	shows(t, tab, `'n' + document.querySelectorAll('.turn.assistant').length !== '`+before+`' && !document.querySelector('.busy') && 'answered'`)
}

// shows waits until a script in the page gives a text. It asks again and again, as the page's
// policy forbids the polling that would run inside it.
func shows(t *testing.T, tab context.Context, script string) string {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
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

// speaking is a model that always says the same.
func speaking(t *testing.T, says string, delay time.Duration) *server {
	t.Helper()
	m := generatetest.Speaking(t, generatetest.Speaker{Template: hermesTemplate, Says: says, Delay: delay}, engine.Options{})
	m.Generation = &meta.GenerationConfig{Temperature: new(float64)} // one token in 20,000 would be another
	return serve(t, m)
}

// sameText fails unless a text of the page is as wanted.
func sameText(t *testing.T, what, got, want string) {
	t.Helper()
	if strings.TrimSpace(got) != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}
