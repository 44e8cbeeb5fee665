package api

import (
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/heftai/heft/api/batches"
	"github.com/heftai/heft/api/messages"
	"github.com/heftai/heft/api/ollama"
	"github.com/heftai/heft/api/openai"
	"github.com/heftai/heft/api/responses"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/spelling"
)

// A dialect is a set of endpoints that share a wire format.
type dialect struct {
	// errors writes the errors of the dialect's paths, those of the middleware included.
	errors wire.ErrorWriter
	routes chi.Router
	// owns reports whether a request that no route has is for the dialect; nil: none is.
	owns func(*http.Request) bool
	// shares reports whether a request to a route of another dialect is of this one's clients; nil: none is.
	shares func(*http.Request) bool
}

type route struct {
	method, pattern string
	handle          http.HandlerFunc
}

func newDialect(errors wire.ErrorWriter, routes ...route) dialect {
	d := dialect{errors: errors, routes: chi.NewRouter()}
	for _, e := range routes {
		d.routes.Method(e.method, e.pattern, e.handle)
	}
	return d
}

// openAI is OpenAI's dialect with vLLM's extensions.
func openAI(s *openai.Server, r *responses.Server, b *batches.Server, more ...route) dialect {
	return newDialect(openai.WriteError, append([]route{
		{http.MethodPost, uploads, notAnthropics(b.Upload)},
		{http.MethodGet, "/v1/files", notAnthropics(b.Files)},
		{http.MethodGet, "/v1/files/{id}", notAnthropics(b.File)},
		{http.MethodGet, "/v1/files/{id}/content", notAnthropics(b.Content)},
		{http.MethodDelete, "/v1/files/{id}", notAnthropics(b.DeleteFile)},
		{http.MethodPost, "/v1/batches", notAnthropics(b.Create)},
		{http.MethodGet, "/v1/batches", notAnthropics(b.List)},
		{http.MethodGet, "/v1/batches/{id}", notAnthropics(b.Retrieve)},
		{http.MethodPost, "/v1/batches/{id}/cancel", notAnthropics(b.Cancel)},
		{http.MethodPost, "/v1/responses", r.Create},
		{http.MethodPost, "/v1/responses/input_tokens", r.InputTokens},
		{http.MethodPost, "/v1/responses/compact", r.Compact},
		{http.MethodGet, "/v1/responses/{id}", r.Retrieve},
		{http.MethodDelete, "/v1/responses/{id}", r.Delete},
		{http.MethodPost, "/v1/responses/{id}/cancel", r.Cancel},
		{http.MethodGet, "/v1/responses/{id}/input_items", r.InputItems},
		{http.MethodPost, "/v1/completions", s.Completions},
		{http.MethodPost, "/v1/chat/completions", s.ChatCompletions},
		{http.MethodPost, "/v1/embeddings", s.Embeddings},
		{http.MethodPost, "/tokenize", s.Tokenize},
		{http.MethodPost, "/detokenize", s.Detokenize},
		{http.MethodGet, "/tokenizer_info", s.TokenizerInfo},
		{http.MethodPost, "/apply-template", s.ApplyTemplate},
	}, more...)...)
}

// modelsPath is where OpenAI's and Anthropic's clients list models.
const modelsPath = "/v1/models"

// below reports whether a path is another or below it.
func below(path, of string) bool { return path == of || strings.HasPrefix(path, of+"/") }

// notAnthropics rejects requests of Anthropic's clients, whose files and batches have the same paths and other fields.
func notAnthropics(h http.HandlerFunc) http.HandlerFunc {
	const why = "Anthropic's files and batches are not supported: put texts into messages. Without the header 'anthropic-version', this path is OpenAI's."
	return func(w http.ResponseWriter, r *http.Request) {
		switch err := (&wire.Error{Kind: wire.NoRoute, Message: why}); {
		case !isAnthropic(r):
			h(w, r)
		case r.ContentLength != 0:
			wire.RejectUnread(w, r, messages.WriteError, err)
		default:
			messages.WriteError(w, err)
		}
	}
}

// isAnthropic reports whether a request is of one of Anthropic's clients, which send their version of the API.
func isAnthropic(r *http.Request) bool { return r.Header.Get("Anthropic-Version") != "" }

// byVersion answers Anthropic's clients with one handler, and the others with another. A description has both.
func byVersion(anthropic, other http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if isAnthropic(r) || wire.DescriptionOf(r.Context()) != nil {
			anthropic(w, r)
			return
		}
		other(w, r)
	}
}

// anthropic is Anthropic's dialect. Its clients send their version of the API with each request, by which
// errors of other paths get the shape that they read.
func anthropic(s *messages.Server) dialect {
	d := newDialect(messages.WriteError,
		route{http.MethodPost, "/v1/messages", s.Create},
		route{http.MethodPost, "/v1/messages/count_tokens", s.CountTokens},
	)
	d.owns = func(r *http.Request) bool {
		return strings.HasPrefix(r.URL.Path, "/v1/messages/") || isAnthropic(r)
	}
	d.shares = func(r *http.Request) bool {
		return isAnthropic(r) && (below(r.URL.Path, modelsPath) || below(r.URL.Path, uploads) || below(r.URL.Path, "/v1/batches"))
	}
	return d
}

// ollamas is Ollama's dialect.
func ollamas(s *ollama.Server) dialect {
	d := newDialect(ollama.WriteError,
		route{http.MethodPost, "/api/chat", s.Chat},
		route{http.MethodPost, "/api/generate", s.Generate},
		route{http.MethodPost, "/api/embed", s.Embed},
		route{http.MethodPost, "/api/embeddings", s.Embeddings},
		route{http.MethodPost, "/api/show", s.Show},
		route{http.MethodGet, "/api/tags", s.Tags},
		route{http.MethodGet, "/api/ps", s.PS},
		route{http.MethodGet, "/api/version", s.Version},
		route{http.MethodPost, "/api/pull", s.Pull},
		route{http.MethodPost, "/api/push", s.NotOffered},
		route{http.MethodPost, "/api/create", s.NotOffered},
		route{http.MethodPost, "/api/copy", s.NotOffered},
		route{http.MethodDelete, "/api/delete", s.NotOffered},
		route{http.MethodPost, "/api/blobs/{digest}", s.NotOffered},
		route{http.MethodGet, "/api/blobs/{digest}", s.NotOffered},
	)
	d.owns = func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/api/") }
	return d
}

// dialects are the dialects of a server. The first one also writes the errors of paths that belong
// to none.
type dialects []dialect

// mount adds the routes of all dialects to r.
func (ds dialects) mount(r chi.Router) {
	for _, d := range ds {
		for _, e := range d.routes.Routes() {
			for method, handler := range e.Handlers {
				r.Method(method, e.Pattern, handler)
			}
		}
	}
}

// errorsOf returns the ErrorWriter of the dialect that has the requested path.
func (ds dialects) errorsOf(r *http.Request) wire.ErrorWriter {
	for _, d := range ds {
		if d.shares != nil && d.shares(r) {
			return d.errors
		}
	}
	for _, d := range ds {
		if len(methodsOf(d.routes, r.URL.Path)) > 0 {
			return d.errors
		}
	}
	for _, d := range ds {
		if d.owns != nil && d.owns(r) {
			return d.errors
		}
	}
	return ds[0].errors
}

// methodsOf returns the methods that r has for path.
func methodsOf(r chi.Routes, path string) []string {
	var methods []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if r.Match(chi.NewRouteContext(), m, path) {
			methods = append(methods, m)
			if m == http.MethodGet {
				methods = append(methods, http.MethodHead)
			}
		}
	}
	return methods
}

// nearPath returns the path of an endpoint that a client with another base URL meant: one without what is before it, or
// below /v1. If there is none, it returns one with a similar name, behind its method if that is another one, or "".
func nearPath(routes chi.Routes, r *http.Request) string {
	rest := path.Clean("/" + r.URL.Path)
	for range 4 { // elements before the endpoint's path
		for _, p := range []string{rest, "/v1" + rest} {
			if rest != "/" && slices.Contains(methodsOf(routes, p), r.Method) {
				return p
			}
		}
		_, after, _ := strings.Cut(rest[1:], "/")
		rest = "/" + after
	}
	return similarPath(routes, r)
}

// similarPath returns the endpoint that a request with a misspelled path meant, with another method or below /v1.
func similarPath(routes chi.Routes, r *http.Request) string {
	methods, names := map[string][]string{}, []string{}
	_ = chi.Walk(routes, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error { // f returns none
		if !strings.ContainsAny(route, "{*") {
			if methods[route] == nil {
				names = append(names, route)
			}
			methods[route] = append(methods[route], method)
		}
		return nil
	})
	for _, p := range []string{r.URL.Path, "/v1" + r.URL.Path} {
		near := spelling.Nearest(p, names, 1)
		switch most := 2; {
		case len(near) == 0 || spelling.Distance(p, near[0], most) > most:
		case slices.Contains(methods[near[0]], r.Method):
			return near[0]
		default:
			return slices.Min(methods[near[0]]) + " " + near[0]
		}
	}
	return ""
}
