package openai

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
)

// A Server serves OpenAI's API for a list of models. It is safe for concurrent use.
type Server struct {
	models    *generate.Models
	keepAlive time.Duration
}

// New returns a server of models. Requests that name no model use the first one.
func New(models *generate.Models) *Server {
	return &Server{models: models, keepAlive: wire.KeepAlive}
}

// read calls decode with a request's fields and the model that it names; see
// [generate.Models.Read].
func (s *Server) read(r *http.Request, decode func(context.Context, *wire.Fields, *generate.Model) error) error {
	return s.models.Read(r.Context(), r.Body, decode)
}

// reply ends an endpoint: it writes v, or err if it is not nil.
func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		respond(w, err)
		return
	}
	wire.WriteJSON(w, http.StatusOK, v)
}

// respond writes err, if it is not nil and the client has not been told of it yet.
func respond(w http.ResponseWriter, err error) {
	if err != nil && !errors.Is(err, wire.ErrGone) {
		WriteError(w, err)
	}
}

// newID returns an id in OpenAI's form.
func newID(prefix string) string { return prefix + strings.ToLower(rand.Text()) }
