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

// Server answers for a list of models. Its methods are safe for concurrent use.
type Server struct {
	models    *generate.Models
	keepAlive time.Duration
}

// New serves models. The first is that of requests that name none.
func New(models *generate.Models) *Server {
	return &Server{models: models, keepAlive: wire.KeepAlive}
}

// read passes a request's fields, and the model that it names, to decode; see [generate.Models.Read].
func (s *Server) read(r *http.Request, decode func(context.Context, *wire.Fields, *generate.Model) error) error {
	return s.models.Read(r.Context(), r.Body, decode)
}

// reply is the end of an endpoint: it answers with v, or with what went wrong.
func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		respond(w, err)
		return
	}
	wire.WriteJSON(w, http.StatusOK, v)
}

// respond answers with what went wrong, if anything did and the client does not know yet.
func respond(w http.ResponseWriter, err error) {
	if err != nil && !errors.Is(err, wire.ErrGone) {
		WriteError(w, err)
	}
}

// newID is an id like those of OpenAI.
func newID(prefix string) string { return prefix + strings.ToLower(rand.Text()) }
