package responses

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/heftai/heft/api/wire"
)

// errCancelled ends the generation of a response that a request has cancelled or deleted.
var errCancelled = errors.New("responses: the response was cancelled")

// running has the responses that are in progress and can be retrieved.
type running struct {
	mu sync.Mutex
	at map[string]*run // by id
}

// find returns the response that a request names, if it is in progress and has the same owner.
func (rs *running) find(r *http.Request) *run {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if run := rs.at[r.PathValue("id")]; run != nil && run.owner == wire.OwnerOf(r.Context()) {
		return run
	}
	return nil
}

func (rs *running) add(r *run) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.at[r.first.ID] = r
}

func (rs *running) remove(r *run) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	delete(rs.at, r.first.ID)
}

// A run is a response in progress as other requests see it: its steps so far. Each of these
// requests builds the response from them.
type run struct {
	owner   string
	first   response // as it was at its start
	input   []*inputItem
	encrypt bool
	cancel  context.CancelCauseFunc

	mu      sync.Mutex
	steps   []step
	changed chan struct{} // closed at the next step
	deleted bool
	final   *response // nil until it has ended
}

func newRun(owner string, q *request, cancel context.CancelCauseFunc) *run {
	return &run{owner: owner, first: *q.response, input: q.items, encrypt: q.encrypt, cancel: cancel, changed: make(chan struct{})}
}

// add stores steps.
func (r *run) add(steps []step) {
	if len(steps) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, steps...)
	r.wake()
}

// wake wakes waiting requests. The caller holds r.mu.
func (r *run) wake() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// end stores the response's end. save stores the response; it is not called if the response was
// deleted.
func (r *run) end(final *response, save func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.deleted {
		save()
	}
	r.final = final
	r.wake()
}

// remove cancels the response, which is then not stored.
func (r *run) remove() {
	r.mu.Lock()
	r.deleted = true
	r.mu.Unlock()
	r.cancel(errCancelled)
}

// cancelAndWait cancels the response and returns it when it has ended. If ctx ends earlier, it
// returns ctx's error.
func (r *run) cancelAndWait(ctx context.Context) (*response, error) {
	r.cancel(errCancelled)
	for at := 0; ; {
		steps, final, changed := r.since(at)
		if final != nil {
			return final, nil
		}
		at += len(steps)
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// since returns the steps after the first at, the response if it has ended, and a channel that is
// closed at the next change.
func (r *run) since(at int) ([]step, *response, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.steps[at:len(r.steps):len(r.steps)], r.final, r.changed
}

// follow serves a response in progress: its current state, or its events after a given one until
// its end.
func (s *Server) follow(ctx context.Context, w http.ResponseWriter, r *run, stream bool, after int) error {
	first := r.first
	first.Output = []*outputItem{}
	if !stream {
		steps, final, _ := r.since(0)
		if final == nil {
			b := newBuilder(&first, r.encrypt, nil)
			for _, step := range steps {
				_ = b.add(step) // nothing is sent
			}
			b.peek()
			final = &first
		}
		wire.WriteJSON(w, http.StatusOK, final)
		return nil
	}
	out := wire.NewEvents(w)
	b := newBuilder(&first, r.encrypt, sendAfter(out, after))
	if b.begin() != nil {
		return wire.ErrGone
	}
	at := 0
	next := func(ctx context.Context) (n int, err error) {
		for {
			steps, final, changed := r.since(at)
			switch {
			case len(steps) > 0:
				return len(steps), nil
			case final != nil:
				return 0, io.EOF
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
		}
	}
	err := wire.Each(ctx, out, s.keepAlive, next, func(n int) error {
		steps, _, _ := r.since(at)
		at += n
		for _, step := range steps[:n] {
			if err := b.add(step); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return wire.ErrGone
	}
	_, final, _ := r.since(at)
	first.take(final)
	if b.finish() == nil {
		_ = out.Line(done) // the client may have disconnected
	}
	return nil
}

// take copies the end of another response.
func (r *response) take(final *response) {
	r.Status, r.Completed, r.Incomplete, r.Error, r.Usage, r.Store = final.Status, final.Completed, final.Incomplete, final.Error, final.Usage, final.Store
}

// done is the last line of each stream.
const done = "data: [DONE]"

// sendAfter returns a function that sends the events whose number is above after.
func sendAfter(out *wire.Events, after int) func(string, any) error {
	n := -1
	return func(name string, event any) error {
		if n++; n <= after {
			return nil
		}
		return out.SendNamed(name, event)
	}
}

// resend sends the events of a stored response after a given one.
func resend(w http.ResponseWriter, r *record, after int) error {
	out := wire.NewEvents(w)
	if err := r.replay(sendAfter(out, after)); err != nil {
		return wire.ErrGone
	}
	_ = out.Line(done) // the client may have disconnected
	return nil
}
