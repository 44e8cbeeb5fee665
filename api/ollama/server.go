package ollama

import (
	"context"
	"net/http"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
)

// A Server answers for a list of models. Its methods are safe for concurrent use.
type Server struct {
	models    *generate.Models
	version   string
	keepAlive time.Duration
}

// New serves models. version is Heft's, shown by /api/version.
func New(models *generate.Models, version string) *Server {
	return &Server{models: models, version: version, keepAlive: wire.KeepAlive}
}

// Chat is POST /api/chat.
func (s *Server) Chat(w http.ResponseWriter, r *http.Request) { s.serve(w, r, true) }

// Generate is POST /api/generate.
func (s *Server) Generate(w http.ResponseWriter, r *http.Request) { s.serve(w, r, false) }

// serve answers the requests of one of the endpoints.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, chat bool) {
	begin := time.Now()
	var q *request
	err := s.models.ReadFields(r.Context(), r.Body, func(ctx context.Context, f *wire.Fields) (err error) {
		q, err = s.decode(ctx, f, chat)
		return err
	})
	if err == nil {
		q.times.begin = begin
		err = s.answer(r.Context(), w, q)
	}
	respond(w, err)
}

// decode reads a request, and loads its model unless the request asks that the model is unloaded. Errors are of type
// *wire.Error.
func (s *Server) decode(ctx context.Context, f *wire.Fields, chat bool) (*request, error) {
	if asksToUnload(f, chat) {
		return s.decodeUnload(ctx, f, chat)
	}
	m, err := s.models.Of(ctx, f)
	switch {
	case err != nil:
		return nil, err
	case chat:
		return decodeChat(ctx, f, m)
	}
	return decodeGenerate(ctx, f, m)
}

// decodeUnload asks the model's list to unload the model of a request. The answer has the model's name.
func (s *Server) decodeUnload(ctx context.Context, f *wire.Fields, chat bool) (*request, error) {
	name, err := generate.NameOf(f)
	if err != nil {
		return nil, err
	}
	if err := s.models.Unload(ctx, name); err != nil {
		return nil, err
	}
	k, err := s.models.Look(name)
	return &request{model: &generate.Model{Name: k.Name}, chat: chat, empty: true, unload: true}, err
}
