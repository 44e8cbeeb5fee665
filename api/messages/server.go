package messages

import (
	"context"
	"net/http"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
)

// A Server serves the Messages API for a list of models. It is safe for concurrent use.
type Server struct {
	models    *generate.Models
	keepAlive time.Duration
}

// New returns a server of models.
func New(models *generate.Models) *Server {
	return &Server{models: models, keepAlive: wire.KeepAlive}
}

// Create serves POST /v1/messages.
func (s *Server) Create(w http.ResponseWriter, r *http.Request) {
	nameRequest(w)
	var q *request
	err := s.models.Read(r.Context(), r.Body, func(ctx context.Context, f *wire.Fields, m *generate.Model) (err error) {
		q, err = decode(ctx, f, m, true)
		return err
	})
	if err == nil {
		err = s.answer(r.Context(), w, q)
	}
	respond(w, err)
}

// CountTokens serves POST /v1/messages/count_tokens. It counts the tokens of a request's prompt.
func (s *Server) CountTokens(w http.ResponseWriter, r *http.Request) {
	nameRequest(w)
	var count tokenCount
	err := s.models.Read(r.Context(), r.Body, func(ctx context.Context, f *wire.Fields, m *generate.Model) error {
		q, err := decode(ctx, f, m, false)
		if err == nil {
			count.Tokens = len(q.Prompt)
		}
		return err
	})
	if err != nil {
		respond(w, err)
		return
	}
	wire.WriteJSON(w, http.StatusOK, count)
}
