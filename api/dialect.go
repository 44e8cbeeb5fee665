package api

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/heftai/heft/api/openai"
	"github.com/heftai/heft/api/wire"
)

// A dialect is a set of endpoints that share a wire format.
type dialect struct {
	// errors writes the errors of the dialect's paths, those of the middleware included.
	errors wire.ErrorWriter
	routes []route
}

type route struct {
	method, pattern string
	handle          http.HandlerFunc
}

// dialects are the dialects of a server; the first one also writes the errors of unknown paths.
type dialects []dialect

// openAI is OpenAI's dialect with vLLM's extensions.
func openAI(s *openai.Server) dialect {
	return dialect{errors: openai.WriteError, routes: []route{
		{http.MethodGet, "/v1/models", s.ListModels},
		{http.MethodGet, "/v1/models/*", s.Model},
		{http.MethodPost, "/v1/completions", s.Completions},
		{http.MethodPost, "/v1/chat/completions", s.ChatCompletions},
		{http.MethodPost, "/v1/embeddings", s.Embeddings},
		{http.MethodPost, "/tokenize", s.Tokenize},
		{http.MethodPost, "/detokenize", s.Detokenize},
	}}
}

// mount adds the routes of all dialects to r.
func (ds dialects) mount(r chi.Router) {
	for _, d := range ds {
		for _, e := range d.routes {
			r.Method(e.method, e.pattern, e.handle)
		}
	}
}

// errorsOf returns the ErrorWriter of the dialect that has the requested path.
func (ds dialects) errorsOf(r *http.Request) wire.ErrorWriter {
	for _, d := range ds[1:] {
		for _, e := range d.routes {
			if e.pattern == r.URL.Path {
				return d.errors
			}
		}
	}
	return ds[0].errors
}
