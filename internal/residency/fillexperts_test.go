package residency

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/residency/policy"
)

func always(int) bool             { return true }
func quiet(context.Context) error { return nil }

// inSlots lists the loads that slots hold.
func inSlots(r *expertSlots) (ids []int) {
	for id := range r.loads {
		if r.has(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func TestFreeSlotsAreFilledWithAFewLoadsOfEachLayer(t *testing.T) {
	r, reads := newTestSlots(t, twoLayers, 5, nil)
	choose(r, 3, Demand)
	hold(t, r, 3)
	r.release(3)
	r.fill(t.Context(), quiet, always)
	if got := inSlots(r); !slices.Equal(got, []int{0, 1, 3, 4, 5}) || reads.Load() != 5 {
		t.Errorf("loads %v are in slots after %d reads, want 0, 1, 3, 4, 5 after 5", got, reads.Load())
	}
	for _, id := range []int{0, 1} {
		choose(r, id, Demand)
		hold(t, r, id)
		r.release(id)
	}
	if s := r.cached(); reads.Load() != 5 || s.Hits != 2 || s.Misses != 1 {
		t.Errorf("%d reads and %+v, want 5 and 2 hits of what was filled", reads.Load(), s)
	}
}

func TestSlotsAreFilledWithWhatAnEarlierProcessRequested(t *testing.T) {
	r, _ := newTestSlots(t, twoLayers, 4, nil)
	for range 20 {
		r.cache.Prime(policy.Step{Layer: 0, Segments: []int32{2, 3}})
		r.cache.Prime(policy.Step{Layer: 1, Segments: []int32{1, 3}})
	}
	r.fill(t.Context(), quiet, always)
	if got := inSlots(r); !slices.Equal(got, []int{2, 3, 5, 7}) {
		t.Errorf("loads %v are in slots, want 2, 3, 5, 7", got)
	}
}

func TestFillingSkipsUnreadyLoadsAndEndsWithItsContext(t *testing.T) {
	r, reads := newTestSlots(t, twoLayers, 8, nil)
	r.fill(t.Context(), quiet, func(id int) bool { return id%2 == 1 })
	if got := inSlots(r); !slices.Equal(got, []int{1, 3, 5, 7}) {
		t.Errorf("loads %v are in slots, want the odd ones", got)
	}
	r.fill(t.Context(), func(context.Context) error { return context.Canceled }, always)
	if n := reads.Load(); n != 4 {
		t.Errorf("%d reads after the end of the context, want 4", n)
	}
}

// TestAReadThatFillsASlotAndFailsIsTriedAgain: a pass that needs the load reads it itself.
func TestAReadThatFillsASlotAndFailsIsTriedAgain(t *testing.T) {
	var failing atomic.Bool
	failing.Store(true)
	r, _ := newTestSlots(t, oneLayer(2), 2, func(int) error {
		if failing.Load() {
			return errors.New("a read that fails")
		}
		return nil
	})
	r.fill(t.Context(), quiet, always)
	failing.Store(false)
	for id := range 2 {
		choose(r, id, Demand)
		hold(t, r, id)
		r.release(id)
	}
}

// TestSlotsBeingFilledServeAPassAndFreeTheirMemory: a pass requests a load that is being
// read and other loads that need the slots. Meanwhile the number of slots falls.
func TestSlotsBeingFilledServeAPassAndFreeTheirMemory(t *testing.T) {
	started, gate := make(chan int, 64), make(chan struct{})
	r, _ := newTestSlots(t, twoLayers, 3, func(i int) error {
		started <- i
		<-gate
		return nil
	})
	page := r.arena.Ledger.Held(hostmem.Staging) / 3
	r.mover.Tune(2, 0)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.fill(t.Context(), quiet, always)
	}()
	<-started // two reads wait at the gate
	<-started
	shrunk := make(chan error)
	go func() {
		r.withoutFills(func() { shrunk <- r.resize(2) })
	}()
	close(gate)
	if err := <-shrunk; err != nil {
		t.Fatal(err)
	}
	if got := r.arena.Ledger.Held(hostmem.Staging); got != 2*page {
		t.Errorf("2 slots take %d bytes, want %d", got, 2*page)
	}
	for range 3 {
		for layer := range 2 {
			wantLoads(r, layer, []int32{0, 1, 2, 3})
			for _, i := range []int{0, 1, 2, 3} {
				hold(t, r, 4*layer+i)
				r.release(4*layer + i)
			}
		}
	}
	<-ended
}
