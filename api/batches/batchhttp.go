package batches

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/heftai/heft/api/wire"
)

// Endpoints are the paths that lines of a batch may call.
var Endpoints = []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"}

// Limits of metadata, the same as OpenAI's: pairs, and the length of names and values.
const maxPairs, maxName, maxValue = 16, 64, 512

// Create serves POST /v1/batches.
func (s *Server) Create(w http.ResponseWriter, r *http.Request) {
	if !s.available(w, r) {
		return
	}
	k, err := s.decode(r)
	if err == nil {
		err = s.add(k)
	}
	if err != nil {
		respond(w, nil, err)
		return
	}
	s.mu.Lock()
	v := k.view()
	s.mu.Unlock()
	respond(w, v, nil)
}

// decode decodes and checks a request for a batch.
func (s *Server) decode(r *http.Request) (*keptBatch, error) {
	f, err := readFields(r)
	if err != nil {
		return nil, err
	}
	now := s.now()
	k := &keptBatch{Order: newOrder(now), Owner: wire.OwnerOf(r.Context()), OutputID: newID("file-"), ErrorID: newID("file-"),
		Batch: batch{ID: newID("batch_"), Object: "batch", Status: validating, CreatedAt: now.Unix(), ExpiresAt: now.Add(windowTime).Unix()}}
	b := &k.Batch
	for name, to := range map[string]*string{"endpoint": &b.Endpoint, "input_file_id": &b.Input, "completion_window": &b.Window} {
		if f.String(name, to); *to == "" {
			f.Fail(name, "Missing required parameter: {}.")
		}
	}
	if f.Err() == nil && b.Window != window {
		f.Fail("completion_window", "Invalid value for {}: expected \"%s\".", window)
	}
	if f.Err() == nil && !slices.Contains(Endpoints, b.Endpoint) {
		f.Fail("endpoint", "Invalid value for {}: expected one of %s.", strings.Join(Endpoints, ", "))
	}
	if f.Has("output_expires_after") {
		f.Fail("output_expires_after", "{} is not supported: files stay until they are deleted.")
	}
	b.Metadata = metadata(f)
	if f.Err() != nil {
		return nil, f.Err()
	}
	if _, err := s.files.find(k.Owner, b.Input); err != nil {
		return nil, wire.Invalidf("input_file_id", "Invalid value for 'input_file_id': no file '%.100s' exists.", b.Input)
	}
	return k, nil
}

// readFields decodes the fields of a request.
func readFields(r *http.Request) (*wire.Fields, error) {
	if f := wire.DescriptionOf(r.Context()); f != nil {
		return f, nil
	}
	defer r.Body.Close()
	body, err := wire.ReadBody(r.Context(), r.Body)
	if err != nil {
		return nil, err
	}
	return wire.ParseFields(body)
}

// metadata returns the client's own notes on a batch.
func metadata(f *wire.Fields) (out map[string]string) {
	f.Texts("metadata", &out)
	if len(out) > maxPairs {
		f.Fail("metadata", "Invalid value for {}: got %d pairs, expected at most %d.", len(out), maxPairs)
	}
	for name, value := range out {
		if len(name) > maxName || len(value) > maxValue {
			f.Fail("metadata", "Invalid value for {}: a name has at most %d bytes, a value %d.", maxName, maxValue)
		}
	}
	return out
}

// Bounds of the limit of a list of batches.
const usualBatches, mostBatches = 20, 100

// List serves GET /v1/batches, the newest batch first.
func (s *Server) List(w http.ResponseWriter, r *http.Request) {
	if !s.available(w, r) {
		return
	}
	limit, after := usualBatches, ""
	err := wire.ReadQuery(r, func(f *wire.Fields) {
		f.Integer("limit", &limit, 1, mostBatches)
		f.String("after", &after)
	})
	if err != nil {
		respond(w, nil, err)
		return
	}
	p, err := newPage(s.of(wire.OwnerOf(r.Context())), func(b *batch) *string { return &b.ID }, after, limit)
	respond(w, p, err)
}

// of returns the batches of an owner, the newest first.
func (s *Server) of(owner string) (all []batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var mine []*keptBatch
	for _, k := range s.batches {
		if k.Owner == owner {
			mine = append(mine, k)
		}
	}
	slices.SortFunc(mine, func(a, b *keptBatch) int {
		return cmp.Or(cmp.Compare(b.Order, a.Order), cmp.Compare(b.Batch.ID, a.Batch.ID))
	})
	for _, k := range mine {
		all = append(all, k.view())
	}
	return all
}

// Retrieve serves GET /v1/batches/{id}.
func (s *Server) Retrieve(w http.ResponseWriter, r *http.Request) {
	if !s.available(w, r) {
		return
	}
	var v batch
	var err error
	s.mu.Lock()
	if k := s.find(wire.OwnerOf(r.Context()), r.PathValue("id")); k != nil {
		v = k.view()
	} else {
		err = noBatch(r)
	}
	s.mu.Unlock()
	respond(w, v, err)
}

func noBatch(r *http.Request) error {
	return &wire.Error{Kind: wire.NotFound, Field: "id", Message: fmt.Sprintf("No batch found with id '%.100s'.", r.PathValue("id"))}
}

// Cancel serves POST /v1/batches/{id}/cancel. Lines that have a result keep it.
func (s *Server) Cancel(w http.ResponseWriter, r *http.Request) {
	if !s.available(w, r) {
		return
	}
	v, err := s.cancelBatch(r.Context(), r)
	respond(w, v, err)
}

func (s *Server) cancelBatch(ctx context.Context, r *http.Request) (batch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.find(wire.OwnerOf(ctx), r.PathValue("id"))
	switch {
	case k == nil:
		return batch{}, noBatch(r)
	case ended(k.Batch.Status):
		return batch{}, wire.Invalidf("", "Cannot cancel a batch with status '%s'.", k.Batch.Status)
	case k.Batch.Status != cancelling:
		now := s.now().Unix()
		k.Batch.Status, k.Batch.CancellingAt = cancelling, &now
		s.save(k)
		if k.cancel != nil {
			k.cancel(errCancelled)
		}
	}
	return k.view(), nil
}
