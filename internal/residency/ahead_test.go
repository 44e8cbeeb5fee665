package residency

import (
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// settle waits until no read-ahead is in flight, so that the test's next steps do not depend on
// timing.
func (c *Changing) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.ahead {
		c.moved.Wait()
	}
}

// walk changes segments in the given order, and returns the counters of the walk.
func walk(t *testing.T, c *Changing, list []*changed, order []int, r *rand.Rand) ChangingStats {
	t.Helper()
	before := c.Stats()
	for _, i := range order {
		// a read ahead while a segment is acquired cannot take its memory, and displaces another one instead
		if err := list[i].changeAfter(c.settle, r); err != nil {
			t.Fatalf("segment %d: %v", i, err)
		}
		c.settle()
	}
	after := c.Stats()
	if after.Held > c.limit || after.Peak > c.limit {
		t.Errorf("with a limit of %d: %+v", c.limit, after)
	}
	after.Read, after.Written, after.Ahead = after.Read-before.Read, after.Written-before.Written, after.Ahead-before.Ahead
	after.Used, after.Hit = after.Used-before.Used, after.Hit-before.Hit
	return after
}

// numbers returns the numbers from 0 on.
func numbers(n int) (list []int) {
	for i := range n {
		list = append(list, i)
	}
	return list
}

// TestExpectedSegmentsAreReadAhead: from the third walk on, all segments are in memory when they
// are acquired, and the two thirds that do not fit are read. Without a forecast each walk reads all
// segments.
func TestExpectedSegmentsAreReadAhead(t *testing.T) {
	c, list, _ := newChanged(t, 24)
	r, order, all := rand.New(rand.NewPCG(1, 2)), numbers(24), int64(0)
	for _, g := range list {
		all += roomOf(g.Changed)
	}
	walk(t, c, list, order, r)
	walk(t, c, list, order, r)
	for i := range 4 {
		st := walk(t, c, list, order, r)
		if st.Hit != st.Used || st.Ahead != st.Read || st.Read == 0 {
			t.Errorf("walk %d: %+v", i, st)
		}
		if most := all * 5 / 6; st.Read > most || st.Written > most {
			t.Errorf("walk %d: %+v, want at most %d bytes each way", i, st, most)
		}
	}
}

// TestAWrongForecastLosesNoChange: the order of walks changes, and then repeats again.
func TestAWrongForecastLosesNoChange(t *testing.T) {
	c, list, _ := newChanged(t, 24)
	r, order := rand.New(rand.NewPCG(3, 4)), numbers(24)
	for range 3 {
		walk(t, c, list, order, r)
	}
	for range 5 {
		walk(t, c, list, r.Perm(24), r)
	}
	slices.Reverse(order)
	walk(t, c, list, order, r)
	walk(t, c, list, order, r)
	if st := walk(t, c, list, order, r); st.Hit != st.Used {
		t.Errorf("%+v", st)
	}
}

// TestAFailedReadAheadFailsTheUse: a read-ahead that fails is not repeated. Only Acquire of its
// segment returns the error.
func TestAFailedReadAheadFailsTheUse(t *testing.T) {
	c, list, dir := newChanged(t, 24)
	r, order := rand.New(rand.NewPCG(5, 6)), numbers(24)
	for range 3 {
		walk(t, c, list, order, r)
	}
	c.mu.Lock()
	bad := slices.IndexFunc(list, func(g *changed) bool { return g.place == inFile })
	c.mu.Unlock()
	f, err := os.OpenFile(scratchFiles(t, dir)[0], os.O_RDWR, 0)
	if err == nil {
		_, err = f.WriteAt([]byte{list[bad].want[7] + 1}, list[bad].off+7)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	walk(t, c, list, order[:bad], r)
	if !list[bad].unread {
		t.Error("it was not read ahead")
	}
	if err := list[bad].change(r); err == nil || !strings.Contains(err.Error(), list[bad].name) {
		t.Errorf("got %v", err)
	}
	rest := append(order[bad+1:], order[:bad]...)
	for range 3 {
		walk(t, c, list, rest, r)
	}
	if st := walk(t, c, list, rest, r); st.Hit != st.Used {
		t.Errorf("without it: %+v", st)
	}
}

// held is the source of segments of one block each. While wait is set, its reads wait for it. The
// segments do not change, so they are always read from the source.
type held struct {
	*Changing
	segments []*Changed
	wait     chan struct{}
	reads    chan *Changed // those that wait
}

// newHeld returns count segments within half of their memory. It acquires them in order until they
// are read ahead.
func newHeld(t *testing.T, count int) *held {
	s := &held{Changing: NewChanging(ChangingOptions{Limit: int64(count) / 2 * blockSize, Dir: t.TempDir()}), reads: make(chan *Changed, count)}
	t.Cleanup(s.Close)
	for i := range count {
		s.segments = append(s.segments, s.Add("segment", blockSize, func(to []byte) error {
			if to[0] = byte(i); s.wait != nil {
				s.reads <- s.segments[i]
				<-s.wait
			}
			return nil
		}))
	}
	for range 3 {
		s.walk(t)
	}
	return s
}

// walk acquires all segments.
func (s *held) walk(t *testing.T) {
	t.Helper()
	for _, g := range s.segments {
		s.use(t, g)
		s.settle()
	}
}

func (s *held) use(t *testing.T, g *Changed) {
	t.Helper()
	data, err := g.Acquire()
	if err != nil {
		t.Fatal(err)
	}
	defer g.Release()
	if data[0] != byte(g.number) {
		t.Errorf("segment %d has the values of %d", g.number, data[0])
	}
}

// begin acquires segments until a read-ahead starts and waits. It returns that segment.
func (s *held) begin(t *testing.T) *Changed {
	t.Helper()
	s.wait = make(chan struct{})
	for _, g := range s.segments {
		s.use(t, g)
		s.mu.Lock()
		began := s.Changing.ahead
		s.mu.Unlock()
		if began {
			return <-s.reads
		}
	}
	t.Fatal("nothing is read ahead")
	return nil
}

// end lets the waiting read continue.
func (s *held) end() {
	close(s.wait)
	s.settle()
	s.wait = nil
}

// TestALimitThatFallsWhileReadingAhead: the lower limit holds as soon as other segments are loaded.
func TestALimitThatFallsWhileReadingAhead(t *testing.T) {
	s := newHeld(t, 12)
	s.begin(t)
	s.SetLimit(2 * blockSize)
	s.end()
	s.walk(t)
	for range 3 {
		for i, g := range s.segments {
			s.use(t, g)
			s.settle()
			if st := s.Stats(); st.Held > 2*blockSize {
				t.Fatalf("use %d: %+v", i, st)
			}
		}
	}
}

// TestClosingWhileReadingAhead: Close waits for the read, and frees its memory.
func TestClosingWhileReadingAhead(t *testing.T) {
	s := newHeld(t, 12)
	s.begin(t)
	closed := make(chan struct{})
	go func() { s.Close(); close(closed) }()
	for ended := false; !ended; runtime.Gosched() {
		s.mu.Lock()
		ended = s.Changing.closed
		s.mu.Unlock()
	}
	select {
	case <-closed:
		t.Error("Close did not wait")
	default:
	}
	close(s.wait)
	<-closed
	if st := s.Stats(); st.Held != 0 {
		t.Errorf("%+v", st)
	}
	if _, err := s.segments[0].Acquire(); err == nil {
		t.Error("acquired after Close")
	}
}

// TestDroppingWhileReadingAhead: a segment dropped during its read is zeros.
func TestDroppingWhileReadingAhead(t *testing.T) {
	s := newHeld(t, 12)
	g := s.begin(t)
	go close(s.wait)
	g.Drop()
	s.settle()
	s.wait = nil
	data, err := g.Acquire()
	if err != nil {
		t.Fatal(err)
	}
	defer g.Release()
	if slices.Max(data) != 0 {
		t.Errorf("got %d, want zeros", slices.Max(data))
	}
}
