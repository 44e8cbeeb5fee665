package residency

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// A testSource records the reads from it.
type testSource struct {
	ready    func() error // prepare; may be nil
	readOne  func(piece int) error
	transfer move
	ended    chan error
}

func (s *testSource) prepare() error {
	if s.ready == nil {
		return nil
	}
	return s.ready()
}

func (s *testSource) read(piece int) error { return s.readOne(piece) }

func newTestSource(pieces int, read func(piece int) error) *testSource {
	s := &testSource{readOne: read, ended: make(chan error, 1)}
	s.transfer = move{source: s, pieces: pieces, done: func(err error) { s.ended <- err }}
	return s
}

func TestMoverReadsDemandFirst(t *testing.T) {
	m := new(Mover)
	m.Tune(1, 0)
	m.open()
	defer m.close()
	var order []int
	gate := make(chan struct{})
	busy := newTestSource(1, func(int) error { <-gate; return nil })
	m.submit(&busy.transfer, Background)
	all := []*testSource{busy}
	for i, p := range []Priority{LookAhead, Background, Next, Demand, Next, LookAhead} {
		s := newTestSource(2, func(piece int) error { order = append(order, 10*i+piece); return nil })
		m.submit(&s.transfer, p)
		all = append(all, s)
	}
	m.raise(&all[6].transfer, Demand) // the last one
	close(gate)
	for _, s := range all {
		if err := <-s.ended; err != nil {
			t.Error(err)
		}
	}
	if want := []int{30, 31, 50, 51, 20, 21, 40, 41, 10, 11, 0, 1}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
}

// TestMoverReadsSeveralPiecesAtOnce: only one read used to be in flight at a time.
func TestMoverReadsSeveralPiecesAtOnce(t *testing.T) {
	const depth = 5
	m := new(Mover)
	m.Tune(depth, 0)
	m.open()
	defer m.close()
	var together sync.WaitGroup
	together.Add(depth)
	meet := func(int) error { together.Done(); together.Wait(); return nil }
	one, two := newTestSource(2, meet), newTestSource(3, meet)
	m.submit(&one.transfer, Next)
	m.submit(&two.transfer, Demand)
	for _, s := range []*testSource{one, two} {
		if err := <-s.ended; err != nil {
			t.Error(err)
		}
	}
	if got := m.Stats(); got.Most != depth || got.Reads != depth {
		t.Errorf("%+v, want %d reads, all at once", got, depth)
	}
}

// TestMoverCallsDoneOnce: for every failure at any time, done is called exactly once, with an
// error.
func TestMoverCallsDoneOnce(t *testing.T) {
	broken := errors.New("broken")
	m := new(Mover)
	m.open()
	defer m.close()
	for pieces := range 6 {
		for bad := -1; bad < pieces; bad++ {
			var before atomic.Bool
			s := newTestSource(pieces, func(piece int) error {
				if !before.Load() {
					t.Error("a piece was read before prepare had ended")
				}
				if piece == bad {
					return broken
				}
				return nil
			})
			s.ready = func() error { before.Store(true); return nil }
			m.submit(&s.transfer, Demand)
			if err := <-s.ended; (err != nil) != (bad >= 0) || bad >= 0 && !errors.Is(err, broken) {
				t.Errorf("piece %d of %d fails: %v", bad, pieces, err)
			}
		}
	}
	s := newTestSource(3, func(int) error { t.Error("read after prepare had failed"); return nil })
	s.ready = func() error { return broken }
	m.submit(&s.transfer, Next)
	if err := <-s.ended; !errors.Is(err, broken) {
		t.Errorf("prepare fails: %v", err)
	}
}

func TestMoverCancelsReadsThatHaveNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(Mover)
		m.Tune(1, 0)
		m.open()
		gate := make(chan struct{})
		started, waiting := newTestSource(3, func(int) error { <-gate; return nil }), newTestSource(3, func(int) error { t.Error("read"); return nil })
		preparing := newTestSource(1, func(int) error { t.Error("read"); return nil })
		m.submit(&started.transfer, Next)
		synctest.Wait()
		m.submit(&waiting.transfer, Next)
		m.cancel(&started.transfer, errClosed)
		m.cancel(&waiting.transfer, errClosed)
		if err := <-waiting.ended; err != errClosed {
			t.Error(err)
		}
		close(gate)
		if err := <-started.ended; err != errClosed {
			t.Error(err)
		}
		again := make(chan struct{})
		preparing.ready = func() error { <-again; return nil }
		m.submit(&preparing.transfer, Next)
		synctest.Wait()
		m.cancel(&preparing.transfer, errClosed)
		close(again)
		if err := <-preparing.ended; err != errClosed {
			t.Error(err)
		}
		m.close()
	})
}

// TestMoverServesStoresInTurn: workers end with the last store and start again with the next.
func TestMoverServesStoresInTurn(t *testing.T) {
	m := new(Mover)
	for range 20 {
		m.open()
		s := newTestSource(4, func(int) error { return nil })
		m.submit(&s.transfer, Demand)
		if err := <-s.ended; err != nil {
			t.Error(err)
		}
		m.close()
		if m.workers != 0 {
			t.Fatalf("%d workers without a store", m.workers)
		}
	}
}

// TestTheBackgroundPausesWhileAPassWaits: the first request of a cold model used to share the disk
// with warming, so that the whole model was read before its first token.
func TestTheBackgroundPausesWhileAPassWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(Mover)
		m.Tune(4, 0)
		m.open()
		defer m.close()
		var warmed atomic.Int32
		warm := newTestSource(6, func(int) error { warmed.Add(1); return nil })
		gate := make(chan struct{})
		wait := func(int) error { <-gate; return nil }
		demand, raised := newTestSource(1, wait), newTestSource(1, wait)
		m.submit(&demand.transfer, Demand)
		synctest.Wait()
		m.submit(&warm.transfer, Background)
		synctest.Wait()
		if n := warmed.Load(); n != 0 {
			t.Errorf("%d pieces are read in the background while a pass waits", n)
		}
		gate <- struct{}{}
		synctest.Wait()
		if n := warmed.Load(); n != 6 {
			t.Errorf("%d pieces are read in the background afterwards, want 6", n)
		}
		more := newTestSource(2, func(int) error { warmed.Add(1); return nil })
		m.submit(&raised.transfer, Background)
		synctest.Wait()
		m.raise(&raised.transfer, Demand) // while it is being read
		m.submit(&more.transfer, LookAhead)
		synctest.Wait()
		if n := warmed.Load(); n != 6 {
			t.Errorf("%d pieces are read while a pass waits for a raised one", n-6)
		}
		close(gate)
		for _, s := range []*testSource{demand, warm, raised, more} {
			if err := <-s.ended; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestMoverReportsWhetherItReads: also after moves that failed, or were cancelled or withdrawn.
func TestMoverReportsWhetherItReads(t *testing.T) {
	m := new(Mover)
	m.Tune(1, 0)
	m.open()
	defer m.close()
	expect := func(when string, want bool) {
		t.Helper()
		if m.Reading() != want {
			t.Errorf("%s: reading %v, want %v", when, !want, want)
		}
	}
	expect("before the first move", false)
	gate := make(chan struct{})
	busy := newTestSource(3, func(piece int) error {
		if piece == 0 {
			<-gate
			return nil
		}
		return errors.New("a read that fails")
	})
	unready := newTestSource(2, nil)
	unready.ready = func() error { return errors.New("a file that is gone") }
	canceled, withdrawn := newTestSource(2, nil), newTestSource(2, nil)
	for _, s := range []*testSource{busy, unready, canceled, withdrawn} {
		m.submit(&s.transfer, Background)
	}
	expect("with moves", true)
	if !m.withdraw(&withdrawn.transfer) {
		t.Error("a move that was not started could not be withdrawn")
	}
	m.cancel(&canceled.transfer, errSkipped)
	close(gate)
	for _, s := range []*testSource{busy, unready, canceled} {
		if <-s.ended == nil {
			t.Error("a move ended without an error")
		}
	}
	expect("after the last move", false)
}
