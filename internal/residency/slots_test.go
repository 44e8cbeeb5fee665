package residency

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/residency/policy"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A testReader reads load i, of one byte, as i.
type testReader struct {
	ids   map[*load]int
	fail  func(i int) error // says whether a read fails; may be nil
	reads atomic.Int64
}

func (r *testReader) prepare(*load) error        { return nil }
func (r *testReader) finish(*load, []byte) error { return nil }

func (r *testReader) read(l *load, _ int, b []byte) error {
	r.reads.Add(1)
	if r.fail != nil {
		if err := r.fail(r.ids[l]); err != nil {
			return err
		}
	}
	b[0] = byte(r.ids[l])
	return nil
}

// newTestSlots has the loads of some layers, of one piece each.
func newTestSlots(t *testing.T, layers []policy.Layer, slots int, fail func(i int) error) (*expertSlots, *atomic.Int64) {
	t.Helper()
	n := 0
	for _, l := range layers {
		n += l.Segments
	}
	reader := &testReader{ids: map[*load]int{}, fail: fail}
	loads := make([]*load, n)
	for i := range loads {
		loads[i] = &load{slot: 1, pieces: []piece{{0, 0, 1}}, request: maxRead}
		reader.ids[loads[i]] = i
	}
	m, arena := new(Mover), &hostmem.Arena{Ledger: new(hostmem.Ledger)}
	m.open()
	r, err := newExpertSlots(loads, policy.New(layers, int64(slots), policy.Ahead(slots)), arena, slotSizes{planned: slots, bytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	r.mover, r.reader = m, reader
	t.Cleanup(func() {
		r.close()
		m.close()
		if n := arena.Ledger.Total(); n != 0 {
			t.Errorf("%d bytes are still held", n)
		}
	})
	return r, &reader.reads
}

// oneLayer has n segments of one byte.
func oneLayer(n int) []policy.Layer { return []policy.Layer{{Segments: n, Size: 1}} }

// choose requests load id of the first layer.
func choose(r *expertSlots, id int, p Priority) {
	r.choose(0, []int32{int32(id)}, []int{id})
	r.request([]int{id}, p)
}

// keep waits for load id and holds it.
func keep(r *expertSlots, id int) ([]byte, error) {
	for {
		if buf, err := r.hold(id); buf != nil || err != nil {
			return buf, err
		}
		r.await()
	}
}

func hold(t *testing.T, r *expertSlots, id int) {
	t.Helper()
	b, err := keep(r, id)
	if err != nil {
		t.Fatalf("hold %d: %v", id, err)
	}
	if int(b[0]) != id {
		t.Fatalf("the slot of load %d holds %d", id, b[0])
	}
}

func TestSlotsReadOnceWhatFits(t *testing.T) {
	r, reads := newTestSlots(t, oneLayer(3), 3, nil)
	for range 20 {
		for i := range 3 {
			choose(r, i, Next)
			hold(t, r, i)
			r.release(i)
		}
	}
	if n := reads.Load(); n != 3 {
		t.Errorf("%d reads of 3 loads that all fit", n)
	}
}

// TestSlotsServeLoadsThatWereNotChosen: a hold without a decision of the cache uses any slot.
func TestSlotsServeLoadsThatWereNotChosen(t *testing.T) {
	r, _ := newTestSlots(t, oneLayer(10), 2, nil)
	for _, id := range []int{0, 5, 5, 9, 0, 3, 2, 1, 8} {
		hold(t, r, id)
		r.release(id)
	}
}

// TestResizeFreesTheMemoryOfSlots: fewer slots take less memory of the arena, and serve all loads.
func TestResizeFreesTheMemoryOfSlots(t *testing.T) {
	r, reads := newTestSlots(t, oneLayer(9), 6, nil)
	page := r.arena.Ledger.Held(hostmem.Staging) / 6
	pass := func() {
		for i := range 9 {
			choose(r, i, Demand)
			hold(t, r, i)
			r.release(i)
		}
	}
	for _, n := range []int{6, 2, 5, 3, 6, 6} {
		if err := r.resize(n); err != nil {
			t.Fatal(err)
		}
		if got := r.arena.Ledger.Held(hostmem.Staging); got != int64(n)*page || r.size() != n {
			t.Errorf("%d slots take %d bytes, want %d slots and %d bytes", r.size(), got, n, int64(n)*page)
		}
		before := reads.Load()
		pass()
		pass()
		if read := reads.Load() - before; read < 2*int64(9-n) || read > 18 {
			t.Errorf("%d slots: %d reads in two passes of 9", n, read)
		}
	}
}

// TestSlotsRepeatsAFailedRead: one failure costs a second read, two in a row fail the request.
func TestSlotsRepeatsAFailedRead(t *testing.T) {
	broken := errors.New("broken")
	var failures atomic.Int64
	r, reads := newTestSlots(t, oneLayer(3), 2, func(int) error {
		if failures.Add(-1) >= 0 {
			return broken
		}
		return nil
	})
	failures.Store(2)
	if _, err := keep(r, 1); !errors.Is(err, broken) {
		t.Fatalf("hold of a read that failed twice: %v", err)
	}
	hold(t, r, 1)
	r.release(1)
	failures.Store(1)
	hold(t, r, 2)
	r.release(2)
	if n, repeats := reads.Load(), r.mover.Stats().Repeats; n != 5 || repeats != 2 {
		t.Errorf("%d reads and %d repeats, want 5 and 2", n, repeats)
	}
}

// TestSlotsForgetsAStaleFailure: a prefetch that failed a while ago does not fail a later use, as a
// shard that was cut and mended once did.
func TestSlotsForgetsAStaleFailure(t *testing.T) {
	var mended atomic.Bool
	r, _ := newTestSlots(t, oneLayer(2), 2, func(i int) error {
		if !mended.Load() {
			return errors.New("broken")
		}
		return nil
	})
	r.request([]int{1}, LookAhead)
	r.moves.Wait()
	mended.Store(true)
	hold(t, r, 1)
	r.release(1)
}

// TestSlotsForgetsTheFailureOfAnEarlierPass: a pass waited for two loads and ended when the first one failed. The
// failure of the second one ended the next pass, although it could be read by then.
func TestSlotsForgetsTheFailureOfAnEarlierPass(t *testing.T) {
	var mended atomic.Bool
	r, _ := newTestSlots(t, oneLayer(2), 2, func(i int) error {
		if !mended.Load() {
			return errors.New("broken")
		}
		return nil
	})
	if buf, err := r.hold(1); buf != nil || err != nil {
		t.Fatalf("hold of a load that was not read: %v, %v", buf, err)
	}
	r.moves.Wait() // it fails after the pass has ended
	mended.Store(true)
	r.forget([]int{0, 1})
	choose(r, 1, Demand)
	hold(t, r, 1)
	r.release(1)
}

// TestSlotsWaitsForASlotThatStaleReadsOccupy: all slots were being filled with loads that an
// abandoned pass had requested, and nothing told the holder when one of them ended.
func TestSlotsWaitsForASlotThatStaleReadsOccupy(t *testing.T) {
	gate := make(chan struct{})
	r, _ := newTestSlots(t, oneLayer(4), 2, func(i int) error {
		if i < 2 {
			<-gate
		}
		return nil
	})
	r.request([]int{0, 1}, Next)
	r.request([]int{3}, Demand)
	if b, err := r.hold(3); b != nil || err != nil {
		t.Fatalf("no slot is free: %v, %v", b, err)
	}
	close(gate)
	hold(t, r, 3)
	r.release(3)
}

func TestSlotsCloseWakesHolders(t *testing.T) {
	started, block := make(chan struct{}), make(chan struct{})
	r, _ := newTestSlots(t, oneLayer(1), 1, func(int) error {
		close(started)
		<-block
		return nil
	})
	got := make(chan error)
	go func() {
		_, err := keep(r, 0)
		got <- err
	}()
	<-started
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		r.close()
	}()
	if err := <-got; !errors.Is(err, errClosed) {
		t.Errorf("hold on closed slots: %v", err)
	}
	close(block)
	<-closed
}
