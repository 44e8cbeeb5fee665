package main

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
)

// TestABusyModelShrinksForAnother: a model that is in use waited for ever for another one in use. Now that one keeps its
// minimum; both answer as alone, the plans are together within the limit, and the first one grows again when the other leaves.
func TestABusyModelShrinksForAnother(t *testing.T) {
	dir := shelf(t, "a", "b")
	alone := fleetOf(t, runCmd{servedFlags: servedFlags{ModelsDir: dir}})
	want := alone.complete(t, "a")
	plan := alone.fleet.loaded[0].model.Plan()
	shrunk := 0
	for wait := 50 * time.Millisecond; shrunk == 0 && wait < time.Minute; wait *= 8 { // a busy machine loads slowly
		for limit := plan.Least; limit < plan.Least+16<<20; limit += 1 << 20 {
			shrunk += shrinksFor(t, dir, limit, wait, want)
		}
	}
	if shrunk == 0 {
		t.Error("no model has shrunk at any limit")
	}
}

// shrinksFor returns 1 if a is in use and shrinks for b under a limit, and 0 if one of them waits for longer than the
// given time. It compares their answers with want.
func shrinksFor(t *testing.T, dir string, limit int64, wait time.Duration, want string) (shrunk int) {
	t.Helper()
	s := fleetOf(t, runCmd{servedFlags: servedFlags{ModelsDir: dir, LoadTimeout: wait}, placeFlags: placeFlags{MaxMemory: "cpu=" + devicemap.FormatSize(limit)}})
	s.fleet.setLimit(limit, 0)
	lease, end := generate.WithLeases(context.Background())
	defer end()
	if _, err := s.fleet.models.Use(lease, "a"); err != nil { // in use until end
		return 0 // the first answer may take longer
	}
	before := s.fleet.others()
	status, answer := s.ask(t, "POST", "/v1/completions", `{"model":"b","prompt":[5,6,7,8],"max_tokens":8,"ignore_eos":true,"temperature":0}`)
	if status == http.StatusOK && s.fleet.loaded[0].share > 0 {
		shrunk = 1
		if got := answer["choices"].([]any)[0].(map[string]any)["text"]; got != want {
			t.Errorf("limit %d: b answers %q, want %q", limit, got, want)
		}
		if got := s.complete(t, "a"); got != want {
			t.Errorf("limit %d: a that has shrunk answers %q, want %q", limit, got, want)
		}
		if sum := s.fleet.others() + dispatch.RuntimeBytes + dispatch.RequestMemory(limit); sum > limit {
			t.Errorf("limit %d: the models take %d bytes together", limit, sum)
		}
		if made, err := s.fleet.models.MakeRoom(t.Context(), true); !made || err != nil { // b leaves
			t.Errorf("limit %d: b does not leave: %v", limit, err)
		}
		if got := s.fleet.others(); got < before {
			t.Errorf("limit %d: a takes %d bytes after b has left, and took %d", limit, got, before)
		}
	}
	return shrunk
}

// TestModelsUnderAFallingLimit: two models answer without an error and with equal texts while the limit of memory falls
// and rises, and their memory follows it.
func TestModelsUnderAFallingLimit(t *testing.T) {
	dir := shelf(t, "a", "b")
	s := fleetOf(t, runCmd{servedFlags: servedFlags{ModelsDir: dir}, placeFlags: placeFlags{MaxMemory: "cpu=1GiB"}})
	want := s.complete(t, "a")
	s.complete(t, "b")
	for _, l := range s.fleet.loaded {
		l.model.Promote(t.Context())
	}
	var asking sync.WaitGroup
	stop := make(chan struct{})
	for _, name := range []string{"a", "b"} {
		asking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if got := s.complete(t, name); got != want {
					t.Errorf("%s answers %q, want %q", name, got, want)
				}
			}
		})
	}
	var shares int64
	for range 5 {
		for _, l := range s.fleet.loaded {
			shares += l.model.SetMemoryShare(1)
		}
		fixed := s.fleet.ledger.Held()
		delete(fixed, "weights")
		var least int64
		for _, n := range fixed {
			least += n
		}
		s.fleet.ledger.SetLimit(least)
		deadline := time.Now().Add(time.Minute)
		for s.fleet.ledger.Held()["weights"] > 0 { // those of a unit that computes follow
			if time.Now().After(deadline) {
				t.Fatalf("without room for weights the models hold %v", s.fleet.ledger.Held())
			}
			time.Sleep(time.Millisecond)
		}
		for _, l := range s.fleet.loaded {
			l.model.SetMemoryShare(0)
		}
		s.fleet.setLimit(1<<30, 0)
	}
	close(stop)
	asking.Wait()
	if shares == 0 {
		t.Error("no model has a share")
	}
}
