package openai

import (
	"net/http"
	"net/url"

	"github.com/heftai/heft/api/generate"
)

// modelList is the answer of GET /v1/models.
type modelList struct {
	Object string      `json:"object"`
	Data   []modelCard `json:"data"`
}

// modelCard is the answer of GET /v1/models/{id}.
type modelCard struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	// vLLM's: an adapter's base, null for a base, and the most tokens.
	Parent      *string `json:"parent"`
	MaxModelLen int     `json:"max_model_len"`
}

// ListModels is GET /v1/models.
func (s *Server) ListModels(w http.ResponseWriter, r *http.Request) {
	list := modelList{Object: "list", Data: []modelCard{}}
	for _, m := range s.models {
		list.Data = append(list.Data, card(m))
	}
	writeJSON(w, http.StatusOK, list)
}

// Model is GET /v1/models/{id}, where the route's "*" is the id: it may have slashes,
// escaped or not.
func (s *Server) Model(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("*")
	if plain, err := url.PathUnescape(id); err == nil {
		id = plain
	}
	if id == "" {
		respond(w, NoRoute(r))
		return
	}
	m, err := s.model(id)
	if err != nil {
		respond(w, err)
		return
	}
	writeJSON(w, http.StatusOK, card(m))
}

func card(m *generate.Model) modelCard {
	c := modelCard{ID: m.Name, Object: "model", Created: m.Created.Unix(), OwnedBy: "heft", MaxModelLen: m.Limit()}
	if m.Parent != "" {
		c.Parent = &m.Parent
	}
	return c
}

// NoRoute is the error for a path that is not served.
func NoRoute(r *http.Request) *Error {
	return &Error{Status: http.StatusNotFound, Type: typeInvalid, Message: "Invalid URL (" + r.Method + " " + r.URL.Path + ")"}
}

// NoMethod is the error for a path that is served by other methods.
func NoMethod(r *http.Request) *Error {
	return &Error{Status: http.StatusMethodNotAllowed, Type: typeInvalid, Code: "method_not_allowed",
		Message: "Method not allowed: " + r.Method + " " + r.URL.Path}
}

// NoKey is the error for a request that brings no key, or a wrong one.
func NoKey() *Error {
	return &Error{Status: http.StatusUnauthorized, Type: typeInvalid, Code: "invalid_api_key",
		Message: "Incorrect API key: send one as Authorization: Bearer KEY."}
}

// Crashed is the error for a panic.
func Crashed() *Error {
	return &Error{Status: http.StatusInternalServerError, Type: typeServer, Message: "The server had an error while processing your request."}
}

// TooSlow is the error for a body that does not come.
func TooSlow() *Error {
	return &Error{Status: http.StatusRequestTimeout, Type: typeInvalid, Code: "request_timeout",
		Message: "The body of your request came too slowly."}
}

// Full is the error for a body that there is no memory for.
func Full() *Error {
	return &Error{Status: http.StatusServiceUnavailable, Type: typeServer, Code: "overloaded", RetryAfter: 1,
		Message: "The server has as many large requests as it can hold; retry after 1 s."}
}
