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
	// errors writes the errors of the dialect's paths, including those of the middleware.
	errors wire.ErrorWriter
	routes chi.Router
	// owns reports whether a request without a route belongs to the dialect. nil means that none
	// does.
	owns func(*http.Request) bool
	// shares reports whether a request to a route of another dialect comes from a client of this
	// one. nil means that none does.
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

// modelsPath is where clients of OpenAI and Anthropic list models.
const modelsPath = "/v1/models"

// below reports whether path is of or below it.
func below(path, of string) bool { return path == of || strings.HasPrefix(path, of+"/") }

// notAnthropics rejects requests of Anthropic's clients. Their files and batches have the same
// paths as OpenAI's, but other fields.
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

// isAnthropic reports whether a request comes from a client of Anthropic. These clients send the
// version of the API.
func isAnthropic(r *http.Request) bool { return r.Header.Get("Anthropic-Version") != "" }

// byVersion calls the handler anthropic for Anthropic's clients, and the handler other for all
// other clients. The OpenAPI description has both.
func byVersion(anthropic, other http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if isAnthropic(r) || wire.DescriptionOf(r.Context()) != nil {
			anthropic(w, r)
			return
		}
		other(w, r)
	}
}

// anthropic is Anthropic's dialect. Its clients send the API's version with each request. By that
// header they also get errors of other paths in their own form.
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
// to no dialect.
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

// errorsOf returns the ErrorWriter of the dialect that owns the requested path.
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

// nearPath returns the path of an existing endpoint for a client with a wrong base URL: the path
// without its first elements, or below /v1. If there is none, it returns an endpoint with a similar
// name, after its method if that differs, or "".
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

// similarPath returns the endpoint whose path is closest to a misspelled one. It may have another
// method or be below /v1.
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
