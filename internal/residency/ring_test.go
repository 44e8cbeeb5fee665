package residency

import (
	"errors"
	"sync/atomic"
	"testing"

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

// newTestRing has n loads of one piece.
func newTestRing(t *testing.T, n, slots int, fail func(i int) error) (*ring, *atomic.Int64) {
	t.Helper()
	reader := &testReader{ids: map[*load]int{}, fail: fail}
	loads := make([]*load, n)
	for i := range loads {
		loads[i] = &load{slot: 1, pieces: []piece{{0, 0, 1}}, request: maxRead}
		reader.ids[loads[i]] = i
	}
	buffers := make([][]byte, slots)
	for i := range buffers {
		buffers[i] = make([]byte, 1)
	}
	m := new(Mover)
	m.open()
	r := newRing(loads, buffers, m, reader)
	t.Cleanup(func() {
		r.close()
		m.close()
	})
	return r, &reader.reads
}

func hold(t *testing.T, r *ring, id int) {
	t.Helper()
	b, err := r.keep(id)
	if err != nil {
		t.Fatalf("hold %d: %v", id, err)
	}
	if int(b[0]) != id {
		t.Fatalf("the slot of load %d holds %d", id, b[0])
	}
}

func TestRingServesPassesInOrder(t *testing.T) {
	const loads, passes = 7, 50
	r, reads := newTestRing(t, loads, 2, nil)
	for range passes {
		for i := range loads {
			r.request([]int{i, (i + 1) % loads, (i + 2) % loads}, Next)
			hold(t, r, i)
			r.release(i)
		}
	}
	if n := reads.Load(); n > passes*loads+1 {
		t.Errorf("%d reads for %d uses: what was read ahead was thrown away", n, passes*loads)
	}
}

func TestRingReadsOnceWhatFits(t *testing.T) {
	r, reads := newTestRing(t, 3, 3, nil)
	for range 20 {
		for i := range 3 {
			r.request([]int{i, (i + 1) % 3, (i + 2) % 3}, Next)
			hold(t, r, i)
			r.release(i)
		}
	}
	if n := reads.Load(); n != 3 {
		t.Errorf("%d reads of 3 loads that all fit", n)
	}
}

func TestRingFollowsJumps(t *testing.T) {
	r, _ := newTestRing(t, 10, 2, nil)
	for _, id := range []int{0, 5, 5, 9, 0, 3, 2, 1, 8} {
		hold(t, r, id) // not requested before
		r.release(id)
	}
}

// TestRingRepeatsAFailedRead: one failure costs a second read, two in a row fail the request.
func TestRingRepeatsAFailedRead(t *testing.T) {
	broken := errors.New("broken")
	var failures atomic.Int64
	r, reads := newTestRing(t, 3, 2, func(int) error {
		if failures.Add(-1) >= 0 {
			return broken
		}
		return nil
	})
	failures.Store(2)
	if _, err := r.keep(1); !errors.Is(err, broken) {
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

// TestRingForgetsAStaleFailure: a prefetch that failed a while ago does not fail a later use, as a
// shard that was cut and mended once did.
func TestRingForgetsAStaleFailure(t *testing.T) {
	var mended atomic.Bool
	r, _ := newTestRing(t, 2, 2, func(i int) error {
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

// TestRingWaitsForASlotThatStaleReadsOccupy: all slots were being filled with loads that an
// abandoned pass had requested, and nothing told the holder when one of them ended.
func TestRingWaitsForASlotThatStaleReadsOccupy(t *testing.T) {
	gate := make(chan struct{})
	r, _ := newTestRing(t, 4, 2, func(i int) error {
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

func TestRingCloseWakesHolders(t *testing.T) {
	started, block := make(chan struct{}), make(chan struct{})
	r, _ := newTestRing(t, 1, 1, func(int) error {
		close(started)
		<-block
		return nil
	})
	got := make(chan error)
	go func() {
		_, err := r.keep(0)
		got <- err
	}()
	<-started
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		r.close()
	}()
	if err := <-got; !errors.Is(err, errClosed) {
		t.Errorf("hold on a closed ring: %v", err)
	}
	close(block)
	<-closed
}
