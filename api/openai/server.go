package openai

import (
	"crypto/rand"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/heftai/heft/api/generate"
)

// Server answers for a list of models. Its methods are safe for concurrent use.
type Server struct {
	models    []*generate.Model
	keepAlive time.Duration
}

// New serves models, of which there is at least one. The first is that of requests that
// name none.
func New(models []*generate.Model) *Server {
	return &Server{models: models, keepAlive: keepAlive}
}

// model finds a model by its name.
func (s *Server) model(name string) (*generate.Model, error) {
	for _, m := range s.models {
		if name == "" || m.Name == name {
			return m, nil
		}
	}
	return nil, &generate.Error{Kind: generate.NoModel, Message: "The model `" + name + "` does not exist."}
}

// modelOf finds the model that a request names.
func (s *Server) modelOf(f *fields) (*generate.Model, error) {
	var name string
	f.text("model", &name)
	if f.err != nil {
		return nil, f.err
	}
	return s.model(name)
}

// read decodes a request's fields and finds the model that it names.
func (s *Server) read(r *http.Request) (*fields, *generate.Model, error) {
	f, err := readFields(r.Body)
	if err != nil {
		return nil, nil, err
	}
	m, err := s.modelOf(f)
	return f, m, err
}

// reply is the end of an endpoint: it answers with v, or with what went wrong.
func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		respond(w, err)
		return
	}
	writeJSON(w, http.StatusOK, v)
}

// respond answers with what went wrong, if anything did and the client does not know yet.
func respond(w http.ResponseWriter, err error) {
	if err != nil && !errors.Is(err, errSent) {
		WriteError(w, err)
	}
}

// newID is an id like those of OpenAI.
func newID(prefix string) string { return prefix + strings.ToLower(rand.Text()) }
