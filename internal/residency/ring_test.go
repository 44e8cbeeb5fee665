package residency

import (
	"errors"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newTestRing has n loads; reading load i writes i into the slot. fail, if not nil, says
// whether a read fails.
func newTestRing(t *testing.T, n, slots int, fail func(i int) error) (*ring, *atomic.Int64) {
	t.Helper()
	loads := make([]*load, n)
	ids := map[*load]int{}
	for i := range loads {
		loads[i] = &load{slot: 1}
		ids[loads[i]] = i
	}
	buffers := make([][]byte, slots)
	for i := range buffers {
		buffers[i] = make([]byte, 1)
	}
	var reads atomic.Int64
	r := newRing(loads, buffers, func(l *load, b []byte) error {
		reads.Add(1)
		if fail != nil {
			if err := fail(ids[l]); err != nil {
				return err
			}
		}
		b[0] = byte(ids[l])
		return nil
	})
	t.Cleanup(r.close)
	return r, &reads
}

func hold(t *testing.T, r *ring, id int) {
	t.Helper()
	b, err := r.hold(id, true)
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
			r.wish([]int{i, (i + 1) % loads, (i + 2) % loads})
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
			r.wish([]int{i, (i + 1) % 3, (i + 2) % 3})
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
		hold(t, r, id) // not wished for before
		r.release(id)
	}
}

func TestRingReportsAFailedReadAndReadsAgain(t *testing.T) {
	broken := errors.New("broken")
	var once atomic.Bool
	r, _ := newTestRing(t, 3, 2, func(i int) error {
		if i == 1 && once.CompareAndSwap(false, true) {
			return broken
		}
		return nil
	})
	if _, err := r.hold(1, true); !errors.Is(err, broken) {
		t.Fatalf("hold of a failed read: %v", err)
	}
	hold(t, r, 1)
	r.release(1)
}

// TestRingForgetsAStaleFailure: a read ahead that failed a while ago does not fail a later
// use, as a shard that was cut and mended once did.
func TestRingForgetsAStaleFailure(t *testing.T) {
	failed := make(chan struct{})
	var once atomic.Bool
	r, _ := newTestRing(t, 2, 2, func(i int) error {
		if once.CompareAndSwap(false, true) {
			defer close(failed)
			return errors.New("broken")
		}
		return nil
	})
	r.wish([]int{1})
	<-failed
	for done := false; !done; {
		r.mu.Lock()
		done = r.where[1] >= 0 && r.slots[r.where[1]].state == slotFailed
		r.mu.Unlock()
	}
	hold(t, r, 1)
	r.release(1)
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
		_, err := r.hold(0, true)
		got <- err
	}()
	<-started
	go r.close()
	if err := <-got; !errors.Is(err, errClosed) {
		t.Errorf("hold on a closed ring: %v", err)
	}
	close(block)
}
