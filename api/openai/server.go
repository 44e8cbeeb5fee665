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
	models    []*generate.Model
	keepAlive time.Duration
}

// New serves models, of which there is at least one. The first is that of requests that
// name none.
func New(models []*generate.Model) *Server {
	return &Server{models: models, keepAlive: wire.KeepAlive}
}

// model finds a model by its name.
func (s *Server) model(name string) (*generate.Model, error) {
	for _, m := range s.models {
		if name == "" || m.Name == name {
			return m, nil
		}
	}
	return nil, &wire.Error{Kind: wire.NoModel, Message: "The model `" + name + "` does not exist."}
}

// modelOf finds the model that a request names.
func (s *Server) modelOf(f *wire.Fields) (*generate.Model, error) {
	var name string
	if f.String("model", &name); f.Null("model") {
		f.WrongType("model", "a string")
	}
	if f.Err() != nil {
		return nil, f.Err()
	}
	return s.model(name)
}

// read passes a request's fields, and the model that it names, to decode. It waits until there is
// memory to decode them. The memory of the body is released when decode has returned.
func (s *Server) read(r *http.Request, decode func(context.Context, *wire.Fields, *generate.Model) error) error {
	defer r.Body.Close()
	b, err := wire.ReadBodyWithin(r.Context(), r.Body, generate.TextLimit(s.models))
	if err != nil {
		return err
	}
	f, err := wire.ParseFields(b)
	if err != nil {
		return err
	}
	claim := wire.ClaimOf(r.Context())
	defer claim.WorkDone()
	f.CountIn(claim)
	m, err := s.modelOf(f)
	if err != nil {
		return err
	}
	return decode(r.Context(), f, m)
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
