package ollama

import (
	"context"
	"net/http"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
)

// A Server serves Ollama's API for a list of models. It is safe for concurrent use.
type Server struct {
	models    *generate.Models
	version   string
	keepAlive time.Duration
}

// New returns a server of models. version is Heft's version, which /api/version shows.
func New(models *generate.Models, version string) *Server {
	return &Server{models: models, version: version, keepAlive: wire.KeepAlive}
}

// Chat serves POST /api/chat.
func (s *Server) Chat(w http.ResponseWriter, r *http.Request) { s.serve(w, r, true) }

// Generate serves POST /api/generate.
func (s *Server) Generate(w http.ResponseWriter, r *http.Request) { s.serve(w, r, false) }

// serve serves both endpoints.
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

// decode decodes a request. It loads the model, unless the request asks to unload it. Errors are of
// type *wire.Error.
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

// decodeUnload unloads the model of a request when it is no longer used. The answer has the model's
// name.
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
