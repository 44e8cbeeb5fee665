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
func (s *Server) Chat(w http.ResponseWriter, r *http.Request) { s.serve(w, r, decodeChat) }

// Generate is POST /api/generate.
func (s *Server) Generate(w http.ResponseWriter, r *http.Request) { s.serve(w, r, decodeGenerate) }

// serve answers the requests that decode reads.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, decode func(context.Context, *wire.Fields, *generate.Model) (*request, error)) {
	begin := time.Now()
	var q *request
	err := s.models.Read(r.Context(), r.Body, func(ctx context.Context, f *wire.Fields, m *generate.Model) (err error) {
		q, err = decode(ctx, f, m)
		return err
	})
	if err == nil {
		q.times.begin = begin
		err = s.answer(r.Context(), w, q)
	}
	respond(w, err)
}
