package responses

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/internal/openaijson"
	"github.com/heftai/heft/api/store"
	"github.com/heftai/heft/api/wire"
)

// A Server serves the Responses API for a list of models. It is safe for concurrent use.
type Server struct {
	models    *generate.Models
	store     *store.Store
	keepAlive time.Duration
	running   running
}

// New returns a server of models that stores responses in kept.
func New(models *generate.Models, kept *store.Store) *Server {
	return &Server{models: models, store: kept, keepAlive: wire.KeepAlive, running: running{at: map[string]*run{}}}
}

// newID returns the id of a new response.
func newID() string { return responsePrefix + strings.ToLower(rand.Text()) }

// pathOf returns the path of a field of an input item.
func pathOf(i int, field string) string { return fmt.Sprintf("input[%d].%s", i, field) }

// respond writes err, if it is not nil and the client has not been told of it yet.
func respond(w http.ResponseWriter, err error) {
	if err != nil && !errors.Is(err, wire.ErrGone) {
		openaijson.WriteError(w, err)
	}
}

// Create serves POST /v1/responses.
func (s *Server) Create(w http.ResponseWriter, r *http.Request) {
	var q *request
	err := s.models.Read(r.Context(), r.Body, func(ctx context.Context, f *wire.Fields, m *generate.Model) (err error) {
		q, err = s.decode(ctx, f, m)
		return err
	})
	if err == nil {
		err = s.answer(r.Context(), w, q)
	}
	respond(w, err)
}

// InputTokens serves POST /v1/responses/input_tokens. It counts the tokens of a request's prompt.
func (s *Server) InputTokens(w http.ResponseWriter, r *http.Request) {
	count := inputTokens{Object: "response.input_tokens"}
	err := s.models.Read(r.Context(), r.Body, func(ctx context.Context, f *wire.Fields, m *generate.Model) error {
		q, err := s.decode(ctx, f, m)
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

// Compact serves POST /v1/responses/compact, which shortens conversations and is not supported. It
// returns 404, because clients retry after server errors.
func (s *Server) Compact(w http.ResponseWriter, _ *http.Request) {
	respond(w, &wire.Error{Kind: wire.NotFound, Message: "/v1/responses/compact is not supported: ask for a summary in a message, " +
		"and send it in place of the conversation."})
}

// notFound returns the error for a response that does not exist or belongs to another key.
func notFound(id string) error {
	return &wire.Error{Kind: wire.NotFound, Message: "Response with id '" + short(id) + "' not found."}
}

// find reads a stored response that is not in progress.
func (s *Server) find(r *http.Request) (*record, error) {
	id := r.PathValue("id")
	rec, err := s.load(r.Context(), id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound(id)
	}
	return rec, err
}

// Retrieve serves GET /v1/responses/{id}. With stream=true it streams the events after
// starting_after.
func (s *Server) Retrieve(w http.ResponseWriter, r *http.Request) {
	stream, after := false, -1
	err := wire.ReadQuery(r, func(f *wire.Fields) {
		f.Bool("stream", &stream)
		f.Integer("starting_after", &after, 0, 1<<31-1)
		if f.Has("starting_after") && !stream {
			f.Fail("starting_after", "{} has a meaning only with 'stream'.")
		}
	})
	if err != nil {
		respond(w, err)
		return
	}
	if run := s.running.find(r); run != nil {
		respond(w, s.follow(r.Context(), w, run, stream, after))
		return
	}
	rec, err := s.find(r)
	switch {
	case err != nil:
		respond(w, err)
	case stream:
		respond(w, resend(w, rec, after))
	default:
		wire.WriteJSON(w, http.StatusOK, rec.Response)
	}
}

// Delete serves DELETE /v1/responses/{id}. It cancels a response that is in progress.
func (s *Server) Delete(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	run := s.running.find(r)
	if run != nil {
		run.remove()
	}
	err := store.ErrNotFound
	if responseID.MatchString(id) {
		err = s.store.Delete(wire.OwnerOf(r.Context()), id)
	}
	if errors.Is(err, store.ErrNotFound) {
		if err = nil; run == nil {
			err = notFound(id)
		}
	}
	if err != nil {
		respond(w, err)
		return
	}
	wire.WriteJSON(w, http.StatusOK, deleted{id, "response", true})
}

// Cancel serves POST /v1/responses/{id}/cancel. It ends a response that is in progress and returns
// it. A response that has ended is returned unchanged.
func (s *Server) Cancel(w http.ResponseWriter, r *http.Request) {
	if run := s.running.find(r); run != nil {
		final, err := run.cancelAndWait(r.Context())
		if err != nil {
			respond(w, err)
			return
		}
		wire.WriteJSON(w, http.StatusOK, final)
		return
	}
	rec, err := s.find(r)
	if err != nil {
		respond(w, err)
		return
	}
	wire.WriteJSON(w, http.StatusOK, rec.Response)
}
