package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
)

// accessible is a server on a listener, which may say that it is on another address.
func accessible(t *testing.T, a api.Access, listens string, keys ...string) string {
	t.Helper()
	m := generatetest.Fake(t, &enginetest.Model{}, engine.Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := api.NewServer(m, api.Options{Access: a, APIKeys: keys,
		Status: func() dispatch.Status { return dispatch.Status{} }, Plan: func() any { return nil }})
	done := make(chan error, 1)
	go func() { done <- s.Serve(elsewhere{l, listens}) }()
	t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
	return l.Addr().String()
}

// elsewhere is a listener that names another address as its own.
type elsewhere struct {
	net.Listener
	ip string
}

func (l elsewhere) Addr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(l.ip), Port: 8000} }

// say sends a request as it stands and returns the answer with its body.
func say(t *testing.T, address, request string) (*http.Response, string) {
	t.Helper()
	c := dial(t, address)
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp, readAll(t, resp)
}

// TestALoopbackServerAnswersItsOwnHostsOnly: a page whose name was made to resolve to this machine
// could use a local server (DNS rebinding).
func TestALoopbackServerAnswersItsOwnHostsOnly(t *testing.T) {
	own := accessible(t, api.Access{Hosts: []string{"Box.Example"}}, "127.0.0.1")
	open := accessible(t, api.Access{}, "0.0.0.0")
	anyone := accessible(t, api.Access{Hosts: []string{"*"}}, "127.0.0.1")
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST:8000": 200, "localhost.:8000": 200, "a.b.localhost:1": 200, "127.0.0.1": 200, "127.0.0.1:8000": 200,
		"10.1.2.3:80": 200, "[::1]:8000": 200, "[::1]": 200, "[fe80::1%25eth0]:80": 200, "box.example": 200, "box.example.:8000": 200,
		"evil.example": 403, "evil.example:8000": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403, "notlocalhost": 403,
		"x.box.example": 403, "2130706433": 403,
	} {
		for _, path := range []string{"/health", "/v1/models", "/plan", "/metrics", "/"} {
			request := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, host)
			if resp, body := say(t, own, request); resp.StatusCode != want || want == 403 && !strings.Contains(body, "--allowed-host") {
				t.Errorf("%s on %s: got %d, want %d: %.200s", path, host, resp.StatusCode, want, body)
			}
		}
		for name, address := range map[string]string{"not on loopback": open, "all allowed": anyone} {
			if resp, body := say(t, address, fmt.Sprintf("GET /v1/models HTTP/1.1\r\nHost: %s\r\n\r\n", host)); resp.StatusCode != 200 {
				t.Errorf("%s, %s: got %d: %s", host, name, resp.StatusCode, body)
			}
		}
	}
	if resp, _ := say(t, own, "GET /v1/models HTTP/1.0\r\n\r\n"); resp.StatusCode != 200 {
		t.Errorf("HTTP/1.0 without a host: got %d", resp.StatusCode)
	}
	if resp, _ := say(t, own, "GET http://evil.example/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"); resp.StatusCode != 403 {
		t.Errorf("a whole URL of another host: got %d", resp.StatusCode)
	}
}

// TestPagesOfOtherOriginsCannotUseTheServer: any page in the user's browser could generate, and
// could find out which models there are.
func TestPagesOfOtherOriginsCannotUseTheServer(t *testing.T) {
	m := generatetest.Fake(t, &enginetest.Model{}, engine.Options{})
	s := serveWith(t, api.Options{Models: []*generate.Model{m}})
	for name, c := range map[string]struct {
		header string // lines NAME: VALUE
		post   int
		get    int
	}{
		"curl and SDKs":                {"", 200, 200},
		"node":                         {"Sec-Fetch-Mode: cors", 200, 200},
		"the page itself":              {"Sec-Fetch-Site: same-origin\nOrigin: " + s.URL, 200, 200},
		"the page in an old browser":   {"Origin: " + s.URL, 200, 200},
		"typed by the user":            {"Sec-Fetch-Site: none\nSec-Fetch-Mode: navigate", 200, 200},
		"a link":                       {"Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate", 403, 200},
		"a form":                       {"Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate\nOrigin: https://evil.example", 403, 200},
		"fetch":                        {"Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: cors\nOrigin: https://evil.example", 403, 403},
		"fetch without cors, no type":  {"Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: no-cors", 403, 403},
		"another port of this machine": {"Sec-Fetch-Site: same-site\nSec-Fetch-Mode: cors\nOrigin: http://localhost:3000", 403, 403},
		"an old browser":               {"Origin: https://evil.example", 403, 403},
		"a file, a sandbox":            {"Origin: null", 403, 403},
	} {
		for _, method := range []string{"POST", "GET"} {
			path, body, want := "/v1/models", "", c.get
			if method == "POST" {
				path, body, want = completions, `{"prompt": [1], "max_tokens": 1}`, c.post
			}
			r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			setHeaders(r, c.header)
			resp, err := s.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != want || resp.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s of %s: got %d, want %d: %.200s", method, name, resp.StatusCode, want, b)
			}
		}
	}
}

func setHeaders(r *http.Request, lines string) {
	for line := range strings.SplitSeq(lines, "\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			r.Header.Set(name, value)
		}
	}
}

// TestAllowedOriginsUseTheServerFromABrowser: with the preflight, and the header of the key.
func TestAllowedOriginsUseTheServerFromABrowser(t *testing.T) {
	const app = "https://app.example:8443"
	m := generatetest.Fake(t, &enginetest.Model{}, engine.Options{})
	for name, c := range map[string]struct {
		origins []string
		origin  string
		allowed string // "" for none
	}{
		"exact":                {[]string{"https://other.example", app}, app, app},
		"with a slash":         {[]string{app + "/"}, app, app},
		"any":                  {[]string{"*"}, "https://whatever.example", "*"},
		"any, a file":          {[]string{"*"}, "null", "*"},
		"another":              {[]string{app}, "https://evil.example", ""},
		"another port":         {[]string{app}, "https://app.example", ""},
		"a name that ends so":  {[]string{"https://app.example"}, "https://xapp.example", ""},
		"a name below":         {[]string{"https://app.example"}, "https://x.app.example", ""},
		"the extension's page": {[]string{"chrome-extension://abc"}, "chrome-extension://abc", "chrome-extension://abc"},
		"none are allowed":     {nil, app, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := api.Access{Origins: c.origins}
			if err := a.Check(); err != nil {
				t.Fatal(err)
			}
			h := api.New(m, api.Options{Access: a, APIKeys: []string{"sesame"},
				Status: func() dispatch.Status { return dispatch.Status{} }})
			ask := func(method, lines string) *httptest.ResponseRecorder {
				r := httptest.NewRequestWithContext(t.Context(), method, completions, strings.NewReader(`{"prompt": [1], "max_tokens": 1}`))
				setHeaders(r, "Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: cors\nOrigin: "+c.origin+"\n"+lines)
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				return w
			}
			preflight := ask("OPTIONS", "Access-Control-Request-Method: POST\nAccess-Control-Request-Headers: authorization,content-type,x-stainless-os")
			real := ask("POST", "Authorization: Bearer sesame")
			keyless := ask("POST", "")
			for _, w := range []*httptest.ResponseRecorder{preflight, real, keyless} {
				if got := w.Header().Get("Access-Control-Allow-Origin"); got != c.allowed {
					t.Errorf("got allowed origin %q, want %q", got, c.allowed)
				}
			}
			if c.origins != nil && !strings.Contains(real.Header().Get("Vary"), "Origin") {
				t.Error("the answer depends on the origin and does not vary by it")
			}
			if c.allowed == "" {
				if preflight.Code != 403 || real.Code != 403 || !strings.Contains(real.Body.String(), "--cors-origin") {
					t.Errorf("got %d and %d %s, want 403", preflight.Code, real.Code, real.Body)
				}
				return
			}
			wantPreflight(t, preflight)
			if real.Code != 200 || keyless.Code != 401 {
				t.Errorf("got %d with a key and %d without, want 200 and 401", real.Code, keyless.Code)
			}
		})
	}
}

func wantPreflight(t *testing.T, preflight *httptest.ResponseRecorder) {
	t.Helper()
	if got := preflight.Header().Get("Access-Control-Allow-Headers"); preflight.Code != 204 || !strings.Contains(got, "authorization") {
		t.Errorf("preflight: got %d, headers %q", preflight.Code, got)
	}
	if got := preflight.Header().Get("Access-Control-Allow-Methods"); !strings.Contains(got, "POST") {
		t.Errorf("preflight: got methods %q", got)
	}
}

func TestAccessChecksItsEntries(t *testing.T) {
	for _, a := range []api.Access{
		{Origins: []string{"app.example"}}, {Origins: []string{"https://app.example/path"}}, {Origins: []string{""}}, {Origins: []string{"https://*.example"}},
		{Hosts: []string{""}}, {Hosts: []string{"http://box"}}, {Hosts: []string{"box:80"}}, {Hosts: []string{"*.example"}},
	} {
		if a.Check() == nil {
			t.Errorf("%+v is taken", a)
		}
	}
}
