package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/openai"
	"github.com/heftai/heft/api/responses"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
	"github.com/heftai/heft/text"
)

// letters is a dialect of its own: {"system", "letters": [{"from", "says"}]}, events with names, and
// errors that are one line of text.
type letters struct{ model *generate.Model }

func (l letters) errors(w http.ResponseWriter, err error) {
	e := generate.AsError(err, "letters")
	http.Error(w, "sorry: "+e.Field+": "+e.Message, e.Kind.Status())
}

func (l letters) write(w http.ResponseWriter, r *http.Request) {
	if err := l.answer(w, r); err != nil {
		l.errors(w, err)
	}
}

func (l letters) answer(w http.ResponseWriter, r *http.Request) error {
	body, err := wire.ReadBody(r.Context(), r.Body)
	if err != nil {
		return err
	}
	f, err := wire.ParseFields(body)
	if err != nil {
		return err
	}
	var system string
	f.String("system", &system)
	c := generate.Conversation{Conversation: text.Conversation{Messages: []text.Message{text.System(system)}}}
	if raw, ok := f.Raw("letters"); ok {
		var list []struct{ From, Says string }
		if json.Unmarshal(raw, &list) != nil {
			f.WrongType("letters", "a list of letters")
		}
		for _, m := range list {
			c.Messages = append(c.Messages, text.Message{Role: m.From, Content: m.Says})
		}
	}
	options, _ := f.Object("options")
	q := generate.Request{MaxTokens: -1}
	if options != nil {
		options.Integer("most", &q.MaxTokens, 1, 1000)
	}
	if f.Err() != nil {
		return f.Err()
	}
	if err := l.model.Converse(r.Context(), c, &q); err != nil {
		return err
	}
	runs, err := l.model.StartAll(r.Context(), []generate.Request{q})
	if err != nil {
		return err
	}
	defer runs.Close()
	events := wire.NewEvents(w)
	return wire.Each(r.Context(), events, wire.KeepAlive, runs.Next, func(p generate.PromptDelta) error {
		return events.SendNamed("line", map[string]string{"text": p.Text})
	})
}

// TestAnotherDialectHasItsOwnWireForm: requests, events and errors, those of the middleware too.
func TestAnotherDialectHasItsOwnWireForm(t *testing.T) {
	const template = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}<|assistant|>"
	m := generatetest.Speaking(t, generatetest.Speaker{Template: template, Says: "Dear all."}, engine.Options{})
	s := newService(m, Options{APIKeys: []string{"k"}, Access: Access{}, Status: func() dispatch.Status { return dispatch.Status{} }})
	l := letters{m}
	h := s.handler(m, dialects{openAI(openai.New(s.models), responses.New(s.models, s.kept(m)), s.Batches), newDialect(l.errors,
		route{http.MethodPost, "/letters", l.write},
		route{http.MethodGet, "/letters/{id}", func(http.ResponseWriter, *http.Request) { panic("lost") }})})
	ask := func(method, path, body, header string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(context.WithoutCancel(t.Context()), method, path, strings.NewReader(body))
		if name, value, ok := strings.Cut(header, ": "); ok {
			r.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	const key = "X-Api-Key: k"
	w := ask("POST", "/letters", `{"system": "Be kind.", "letters": [{"from": "user", "says": "Hi"}]}`, key)
	if body := w.Body.String(); w.Code != 200 || !strings.HasPrefix(body, "event: line\ndata: {\"text\":\"") || strings.Contains(body, "[DONE]") {
		t.Errorf("got %d, %s", w.Code, body)
	}
	for _, c := range []struct {
		method, path, body, header string
		status                     int
		want                       string // how the answer begins
	}{
		{"POST", "/letters", `{"letters": 3}`, key, 400, "sorry: letters: Invalid type for 'letters'"},
		{"POST", "/letters", `{"letters": [], "options": {"most": 0}}`, key, 400, "sorry: options.most: Invalid value for 'options.most'"},
		{"POST", "/letters", `{`, key, 400, "sorry: : We could not parse"},
		{"POST", "/letters", `{}`, "", 401, "sorry: : An API key is missing"},
		{"POST", "/letters", `{}`, "Origin: https://evil.example", 403, "sorry: : The web page"},
		{"DELETE", "/letters", ``, key, 405, "sorry: : Method not allowed"},
		{"GET", "/letters/7", ``, key, 500, "sorry: : The server had an error"},
		{"GET", "/nowhere", ``, key, 404, `{"error":{"message":"Invalid URL`},
		{"POST", "/v1/completions", `{}`, "", 401, `{"error":{"message":"An API key is missing`},
	} {
		w := ask(c.method, c.path, c.body, c.header)
		if w.Code != c.status || !strings.HasPrefix(w.Body.String(), c.want) {
			t.Errorf("%s %s %s: got %d, %s, want %d, %s", c.method, c.path, c.body, w.Code, w.Body, c.status, c.want)
		}
	}
}

// TestDocsNameEveryEndpoint: docs/http.md has all paths of the server.
func TestDocsNameEveryEndpoint(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "docs", "http.md"))
	if err != nil {
		t.Fatal(err)
	}
	docs := string(b)
	m := generatetest.Fake(t, &enginetest.Model{}, engine.Options{})
	h := New(m, Options{Status: func() dispatch.Status { return dispatch.Status{} }})
	err = chi.Walk(h.(chi.Routes), func(method, pattern string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		path := strings.ReplaceAll(pattern, "*", "{id}")
		if strings.HasPrefix(path, "/page/") {
			path = "/page/…"
		}
		if !strings.Contains(docs, "`"+method+" "+path+"`") {
			t.Errorf("docs/http.md has no `%s %s`", method, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
