package api

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"

	"github.com/heftai/heft/api/batches"
	"github.com/heftai/heft/api/internal/schema"
	"github.com/heftai/heft/api/messages"
	"github.com/heftai/heft/api/ollama"
	"github.com/heftai/heft/api/openai"
	"github.com/heftai/heft/api/responses"
	"github.com/heftai/heft/api/wire"
)

// documentPath is the path of the API description.
const documentPath = "/openapi.json"

// A document describes the API as OpenAPI 3.1. The decoders describe the fields of requests that
// they read. Responses are described by the types that are written.
type document struct {
	OpenAPI    string                           `json:"openapi"`
	Info       documentInfo                     `json:"info"`
	Paths      map[string]map[string]*operation `json:"paths"`
	Components components                       `json:"components"`
}

type documentInfo struct {
	Title   string `json:"title"`
	Version string `json:"version"`
}

type components struct {
	Security map[string]map[string]string `json:"securitySchemes"`
}

// operation describes a method of a path.
type operation struct {
	Summary    string                `json:"summary"`
	Parameters []parameter           `json:"parameters,omitempty"`
	Body       *content              `json:"requestBody,omitempty"`
	Responses  map[string]content    `json:"responses"`
	Security   []map[string][]string `json:"security"`
}

// parameter describes an element of a path or a parameter of a query.
type parameter struct {
	Name     string         `json:"name"`
	In       string         `json:"in"`
	Required bool           `json:"required,omitempty"`
	Schema   *schema.Schema `json:"schema"`
}

// content describes a body by media type.
type content struct {
	Description string           `json:"description,omitempty"`
	Required    bool             `json:"required,omitempty"`
	Content     map[string]media `json:"content,omitempty"`
}

type media struct {
	Schema *schema.Schema `json:"schema"`
}

// ownTypes returns the types of the endpoints that belong to no dialect.
func ownTypes() map[string]wire.Types {
	all := map[string]wire.Types{
		"GET /health":         {Summary: "Whether requests are accepted.", Answer: state{}},
		"GET /ready":          {Summary: "Whether weights are in memory.", Answer: state{}},
		"GET /version":        {Summary: "The version.", Answer: map[string]string{}},
		"GET /metrics":        {Summary: "Metrics for Prometheus.", Media: "text/plain"},
		"GET /plan":           {Summary: "The plan of the memory.", Answer: map[string]any{}},
		"GET /activity":       {Summary: "What the models do.", Reads: wire.ReadsQuery, Answer: activityReport{}, Events: []any{activityReport{}}},
		"GET " + documentPath: {Summary: "This document.", Answer: map[string]any{}},
	}
	for url, name := range pagePaths {
		kind, _, _ := strings.Cut(pageType(name), ";")
		all["GET "+url] = wire.Types{Summary: "A file of the page.", Media: kind}
	}
	return all
}

// typesOf returns the types of all endpoints, and the errors of each.
func typesOf() (all map[string]wire.Types, errors map[string]any) {
	all, errors = map[string]wire.Types{}, map[string]any{}
	for _, d := range []struct {
		types map[string]wire.Types
		error any
	}{
		{ownTypes(), openai.ErrorType()}, {openai.Types(), openai.ErrorType()}, {responses.Types(), openai.ErrorType()}, {batches.Types(), openai.ErrorType()},
		{messages.Types(), messages.ErrorType()}, {ollama.Types(), ollama.ErrorType()},
	} {
		for name, t := range d.types {
			if of, shared := all[name]; shared { // also used by Anthropic's clients
				of.Reads, of.Answer = t.Reads, schema.AnyOf{of.Answer, t.Answer}
				all[name], errors[name] = of, schema.AnyOf{errors[name], d.error}
				continue
			}
			all[name], errors[name] = t, d.error
		}
	}
	return all, errors
}

// documented serves the document of r's routes. The first request makes it.
func (s *service) documented(r chi.Routes) http.HandlerFunc {
	made := sync.OnceValues(func() ([]byte, error) {
		d, err := newDocument(r, s.Version)
		if err != nil {
			return nil, err
		}
		var b bytes.Buffer
		err = json.NewEncoder(&b).Encode(d)
		return b.Bytes(), err
	})
	return func(w http.ResponseWriter, r *http.Request) {
		b, err := made()
		if err != nil {
			openai.WriteError(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(b) // the client may have disconnected
	}
}

// newDocument describes the routes of r.
func newDocument(r chi.Routes, version string) (*document, error) {
	key := map[string]map[string]string{"bearer": {"type": "http", "scheme": "bearer"}, "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}}
	d := &document{"3.1.0", documentInfo{"Heft", version}, map[string]map[string]*operation{}, components{key}}
	all, errors := typesOf()
	err := chi.Walk(r, func(method, route string, handler http.Handler, _ ...func(http.Handler) http.Handler) error {
		name := method + " " + route
		path := strings.Replace(route, "/*", "/{id}", 1)
		if d.Paths[path] == nil {
			d.Paths[path] = map[string]*operation{}
		}
		d.Paths[path][strings.ToLower(method)] = newOperation(all[name], handler, method, path, errors[name])
		return nil
	})
	return d, err
}

// newOperation describes an endpoint with the types t.
func newOperation(t wire.Types, handler http.Handler, method, path string, failure any) *operation {
	o := &operation{Summary: t.Summary, Responses: map[string]content{}}
	for _, part := range strings.Split(path, "/") {
		if strings.HasPrefix(part, "{") {
			o.Parameters = append(o.Parameters, parameter{strings.Trim(part, "{}"), "path", true, schema.Of("")})
		}
	}
	switch t.Reads {
	case wire.ReadsBody:
		o.Body = &content{Required: true, Content: map[string]media{"application/json": {fieldsOf(handler, method)}}}
	case wire.ReadsForm:
		o.Body = &content{Required: true, Content: map[string]media{"multipart/form-data": {schema.Of(t.Form)}}}
	case wire.ReadsQuery:
		fields := fieldsOf(handler, method).Properties
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			o.Parameters = append(o.Parameters, parameter{name, "query", false, fields[name]})
		}
	}
	o.Responses[strconv.Itoa(max(t.Status, http.StatusOK))] = answers(t)
	o.Responses["default"] = content{Description: "What went wrong.", Content: map[string]media{"application/json": {schema.Of(failure)}}}
	o.Security = []map[string][]string{{"bearer": {}}, {"key": {}}}
	if open[path] || pagePaths[path] != "" {
		o.Security = []map[string][]string{}
	}
	return o
}

// answers describes the bodies of an endpoint's responses.
func answers(t wire.Types) content {
	c := content{Description: "The answer.", Content: map[string]media{}}
	if t.Media != "" {
		c.Content[t.Media] = media{schema.Of("")}
		return c
	}
	c.Content["application/json"] = media{schema.Of(t.Answer)}
	if len(t.Events) == 0 {
		return c
	}
	kind, event := "text/event-stream", &schema.Schema{}
	if t.Lines {
		kind = "application/x-ndjson"
	}
	for _, e := range t.Events {
		event.AnyOf = append(event.AnyOf, schema.Of(e))
	}
	c.Content[kind] = media{event}
	return c
}

// fieldsOf returns the fields that a handler reads, described by the handler.
func fieldsOf(handler http.Handler, method string) *schema.Schema {
	ctx, s := wire.Describing(context.Background())
	r := (&http.Request{Method: method, URL: &url.URL{Path: "/"}, Header: http.Header{}, Body: http.NoBody}).WithContext(ctx)
	handler.ServeHTTP(discarded{}, r)
	return s
}

// discarded discards the response of a handler that only describes.
type discarded http.Header

func (d discarded) Header() http.Header         { return http.Header(d) }
func (d discarded) Write(b []byte) (int, error) { return len(b), nil }
func (d discarded) WriteHeader(int)             {}
