package residency

import (
	"slices"
	"sync"
	"testing"

	"github.com/heftai/heft/internal/residency/policy"
)

// twoLayers have four segments of one byte each.
var twoLayers = []policy.Layer{{Segments: 4, Size: 1}, {Segments: 4, Size: 1}}

// readsInOrder returns slots for twoLayers that read one load after the other, the first one once
// gate is closed. It also returns a function for the loads read so far.
func readsInOrder(t *testing.T, slots int, gate <-chan struct{}) (*expertSlots, func() []int) {
	t.Helper()
	var mu sync.Mutex
	var order []int
	r, _ := newTestSlots(t, twoLayers, slots, func(i int) error {
		mu.Lock()
		order = append(order, i)
		mu.Unlock()
		<-gate
		return nil
	})
	r.mover.Tune(1, 0)
	return r, func() []int {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(order)
	}
}

// wantLoads requests loads of a layer.
func wantLoads(r *expertSlots, layer int, segments []int32) {
	var ids []int
	for _, s := range segments {
		ids = append(ids, 4*layer+int(s))
	}
	r.choose(layer, segments, ids)
	r.request(ids, Demand)
}

func TestExpectedLoadsAreReadBehindThoseRequested(t *testing.T) {
	gate := make(chan struct{})
	r, order := readsInOrder(t, 6, gate)
	wantLoads(r, 0, []int32{0, 1})
	r.expect(1, []int32{2, 3}, []int{6, 7})
	close(gate)
	r.moves.Wait()
	if got := order(); !slices.Equal(got, []int{0, 1, 6, 7}) {
		t.Errorf("loads are read in the order %v, want 0, 1, 6, 7", got)
	}
	wantLoads(r, 1, []int32{2, 3})
	for _, id := range []int{6, 7} {
		hold(t, r, id)
		r.release(id)
	}
	if n, s := len(order()), r.cached(); n != 4 || s.Hits != 0 || s.Misses != 4 || s.Early != 2 {
		t.Errorf("%d reads and %+v, want 4 reads, and all loads missed", n, s)
	}
}

// TestLoadsThatWereWronglyExpectedAreNotRead: if the router chooses other loads before the expected
// ones are read, these are not read. The next request gets their slots.
func TestLoadsThatWereWronglyExpectedAreNotRead(t *testing.T) {
	gate := make(chan struct{})
	r, order := readsInOrder(t, 4, gate)
	wantLoads(r, 0, []int32{0, 1})
	r.expect(1, []int32{2, 3}, []int{6, 7})
	wantLoads(r, 1, []int32{0, 1})
	close(gate)
	for _, id := range []int{4, 5} {
		hold(t, r, id)
		r.release(id)
	}
	r.moves.Wait()
	if got := order(); slices.Contains(got, 6) || slices.Contains(got, 7) || len(got) != 4 {
		t.Errorf("read %v, want 0, 1, 4 and 5 only", got)
	}
	wantLoads(r, 1, []int32{2, 3})
	for _, id := range []int{6, 7} { // they can be read later
		hold(t, r, id)
		r.release(id)
	}
}

// TestExpectedLoadsDisplaceNothingThatIsNeeded: if there is room only for the loads that the layer
// requests, no load is expected.
func TestExpectedLoadsDisplaceNothingThatIsNeeded(t *testing.T) {
	gate := make(chan struct{})
	close(gate)
	r, order := readsInOrder(t, 2, gate)
	wantLoads(r, 0, []int32{0, 1})
	r.expect(1, []int32{2}, []int{6})
	for _, id := range []int{0, 1} {
		hold(t, r, id)
		r.release(id)
	}
	r.moves.Wait()
	if got := order(); !slices.Equal(got, []int{0, 1}) {
		t.Errorf("read %v, want 0 and 1", got)
	}
}

// TestGuessesPauseWhereTheyAreWrong: expected loads are counted at first, and only rarely once none
// was worth its reads.
func TestGuessesPauseWhereTheyAreWrong(t *testing.T) {
	for _, right := range []bool{false, true} {
		g, st, guessed := new(guesses), new(stack), 0
		const units = 4000
		for range units {
			if g.paused() {
				continue
			}
			guessed++
			g.tried++
			g.stack, g.list = st, append(g.list[:0], guess{expert: 3, position: 0})
			chosen := []int32{5}
			if right {
				chosen[0] = 3
			}
			g.judge(st, chosen)
		}
		if right && (guessed != units || g.right[0] < worthwhile) {
			t.Errorf("%d of %d right guesses are made; their share counts as %.2f", guessed, units, g.right[0])
		}
		if !right && (guessed > units/5 || guessed < 2*guessTrial) {
			t.Errorf("%d of %d wrong guesses are made, want a few", guessed, units)
		}
	}
}
