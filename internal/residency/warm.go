package residency

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/loader"
)

const (
	// warmWindow is the number of bytes that the operating system is asked to read ahead of a
	// conversion.
	warmWindow = 128 << 20
	// warmStep is the size of one request to the operating system for pages of a mapping.
	warmStep = 64 << 20
)

// Progress is the progress of loading the cpu tier.
type Progress struct {
	UnitsDone, UnitsTotal int
	BytesDone, BytesTotal int64
	SecondsLeft           float64 // estimated from the rate so far; 0 if done or unknown
	Seconds               float64 // duration; 0 until it is done
	Started, Done         bool
	Filled                bool // the slots for experts of the disk tier were filled too, as far as passes allowed it
	Err                   error
}

// progress is the state of Warm. mu guards the fields that are not atomic.
type progress struct {
	ctx        context.Context // of Warm; nil before
	cancel     context.CancelFunc
	done       chan struct{}
	start      time.Time
	took       time.Duration
	units      atomic.Int64
	bytes      atomic.Int64
	filled     atomic.Bool
	mu         sync.Mutex
	err        error
	ended      bool // Warm has loaded everything
	started    bool
	afterwards sync.WaitGroup // background work that begins when Warm has ended
}

// Warm loads the cpu tier in the background, in the order of use. It maps the weights that the
// page cache holds, reads others directly into memory of their own, converts those to be
// converted, and reads the first units of the disk tier ahead. Experts come last but for tables.
// Finally it fills the slots for experts of the disk tier while no pass runs. Warm returns at
// once. A pass that needs a segment earlier loads it itself, with priority.
func (s *Store) Warm(ctx context.Context) {
	for _, st := range s.streams {
		if s.acquired.Load() == 0 {
			st.prefetch(LookAhead)
		}
	}
	w := &s.warm
	ctx, cancel := context.WithCancel(ctx)
	w.mu.Lock()
	w.ctx, w.cancel, w.done, w.start, w.started = ctx, cancel, make(chan struct{}), time.Now(), true
	w.mu.Unlock()
	go func() {
		defer close(w.done)
		err := s.warmAll(ctx)
		w.mu.Lock()
		w.err, w.ended, w.took = err, err == nil, time.Since(w.start)
		w.mu.Unlock()
		if err == nil {
			w.afterwards.Go(func() {
				s.fillExperts(ctx)
				w.filled.Store(true)
				// Without hashes a file with a new modification time counts as changed. An error
				// has no other effect.
				_ = s.binding.Checkpoint().HashFiles(ctx, true, s.whenQuiet(quietFor, busyWaits))
			})
		}
	}()
}

// Warming returns the progress of Warm. It is safe for concurrent use.
func (s *Store) Warming() Progress {
	w := &s.warm
	w.mu.Lock()
	defer w.mu.Unlock()
	p := Progress{UnitsDone: int(w.units.Load()), UnitsTotal: len(s.units), BytesDone: w.bytes.Load(),
		BytesTotal: s.tiers[devicemap.CPU], Started: w.started, Done: w.ended, Filled: w.filled.Load(), Err: w.err}
	if w.ended {
		p.Seconds = w.took.Seconds()
	}
	if took := time.Since(w.start).Seconds(); w.started && !w.ended && p.BytesDone > 0 {
		p.SecondsLeft = took * float64(p.BytesTotal-p.BytesDone) / float64(p.BytesDone)
	}
	return p
}

// finished returns a channel that is closed when Warm has ended, or already closed if Warm was
// not called.
func (w *progress) finished() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done != nil {
		return w.done
	}
	none := make(chan struct{})
	close(none)
	return none
}

// stop cancels Warm and waits for it and for the work after it.
func (w *progress) stop() {
	w.mu.Lock()
	cancel, done := w.cancel, w.done
	w.mu.Unlock()
	if cancel != nil {
		cancel()
		<-done
	}
	w.afterwards.Wait()
}

// A visit is a segment that Warm loads, with the unit that uses it.
type visit struct {
	*segment
	unit int
}

// visits lists the segments of the cpu tier. Segments that every token uses are first, in the
// order of use. Experts follow, of which a token uses a few, then tables, of which it uses a row.
func (s *Store) visits() []visit {
	var always, experts, tables []visit
	seen := map[*segment]bool{}
	for i := range s.units {
		u := &s.units[i]
		for _, w := range u.wants {
			if w.device != devicemap.CPU || seen[w.segment] {
				continue
			}
			seen[w.segment] = true
			if w.gathered {
				tables = append(tables, visit{w.segment, i})
			} else {
				always = append(always, visit{w.segment, i})
			}
		}
		for _, n := range u.Experts {
			st := s.stacks[n.Module]
			for e := range st.experts {
				if g := &st.experts[e]; g.device == devicemap.CPU {
					experts = append(experts, visit{g, i})
				}
			}
		}
	}
	return slices.Concat(always, experts, tables)
}

// warmAll is Warm in the foreground.
func (s *Store) warmAll(ctx context.Context) error {
	visits := s.visits()
	left := make([]int, len(s.units))
	for i := range visits {
		left[visits[i].unit]++
	}
	for _, n := range left {
		if n == 0 {
			s.warm.units.Add(1)
		}
	}
	w := warming{store: s, visits: visits, left: left, ahead: readAhead{store: s, visits: visits}}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	for range loaders {
		group.Go(func() {
			if err := w.run(ctx); err != nil {
				cancel(err)
			}
		})
	}
	group.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	s.unmapCopied()
	if err := s.finishSidecar(ctx, s.side(), nil); err != nil {
		return err
	}
	s.recordSizes()
	return nil
}

// loaders is the number of segments that Warm loads at a time. The next ones are read while one
// is copied or converted.
const loaders = 4

// warming is the state that the loaders share.
type warming struct {
	store  *Store
	mu     sync.Mutex // guards the fields below
	visits []visit
	left   []int // by unit: visits that are not done
	ahead  readAhead
}

// run loads segments until none is left.
func (w *warming) run(ctx context.Context) error {
	for {
		w.mu.Lock()
		if len(w.visits) == 0 {
			w.mu.Unlock()
			return nil
		}
		v := w.visits[0]
		w.visits = w.visits[1:]
		w.store.find(v.segment)
		if v.converts() {
			w.ahead.advance(v.size())
		}
		w.mu.Unlock()
		if err := w.store.warmSegment(ctx, v.segment); err != nil {
			return err
		}
		w.mu.Lock()
		if w.left[v.unit]--; w.left[v.unit] == 0 {
			w.store.warm.units.Add(1)
		}
		w.mu.Unlock()
	}
}

// warmSegment loads g and counts its bytes.
func (s *Store) warmSegment(ctx context.Context, g *segment) error {
	c, err := s.load(ctx, g, Background)
	if err == nil && c == nil && !g.displaced.Load() {
		err = s.populate(ctx, g)
	}
	if err != nil {
		return err
	}
	for k := range g.pieces {
		n := g.pieces[k].Size
		if g.converted[k] { // the total counts it converted, even if it is used as stored
			_, n, _ = s.quantizer.converted(&g.pieces[k]) // load has checked it
		}
		s.warm.bytes.Add(n)
	}
	return nil
}

// unmapCopied unmaps the pages of copied segments again. The system maps whole huge pages of a file, so reads
// of their neighbours may have mapped them.
func (s *Store) unmapCopied() {
	for _, g := range s.copies.order {
		if g.copied.Load() != nil {
			g.unmap()
		}
	}
}

// A readAhead asks the operating system to read the bytes that are converted next, across
// segments, so that the disk is busy during conversions.
type readAhead struct {
	store  *Store
	visits []visit        // not added to ranges yet
	ranges []stored.Range // to ask for, in order
	asked  int64          // bytes requested and not converted yet
}

// advance records that the next n bytes are about to be converted, and requests more.
func (a *readAhead) advance(n int64) {
	for a.asked -= n; a.asked < warmWindow; {
		for len(a.ranges) == 0 {
			if len(a.visits) == 0 {
				return
			}
			if g := a.visits[0].segment; g.converts() {
				a.store.find(g)
				for k := range g.pieces {
					a.ranges = append(a.ranges, g.pieces[k].Ranges...)
				}
			}
			a.visits = a.visits[1:]
		}
		r := &a.ranges[0]
		part := min(r.Size, warmStep)
		_ = r.Tensor.Advise(r.Begin, part, loader.WillNeed) // only a hint
		a.asked += part
		r.Begin, r.Size = r.Begin+part, r.Size-part
		if r.Size == 0 {
			a.ranges = a.ranges[1:]
		}
	}
}
