package residency

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/loader"
)

const (
	// warmWindow is how far ahead of a conversion the system is asked to read.
	warmWindow = 128 << 20
	// warmStep is the size of one request to the system for pages of a mapping.
	warmStep = 64 << 20
)

// Progress is how much of the cpu tier was loaded. Any goroutine may read it.
type Progress struct {
	UnitsDone, UnitsTotal int
	BytesDone, BytesTotal int64
	SecondsLeft           float64 // by the rate so far; 0 when done or unknown
	Seconds               float64 // that it took, once done
	Started, Done         bool
	Err                   error
}

// progress is the state of Warm.
type progress struct {
	ctx     context.Context // of Warm; nil before
	cancel  context.CancelFunc
	done    chan struct{}
	start   time.Time
	took    time.Duration
	units   atomic.Int64
	bytes   atomic.Int64
	mu      sync.Mutex
	err     error
	end     bool // without an error
	started bool
	after   sync.WaitGroup // what goes on when everything is warm
}

// Warm loads the cpu tier in the background, in the order of use: it maps the weights that the page
// cache holds, reads others directly into memory of their own, converts those that are to be
// converted, and reads the first units of the disk tier ahead. Experts come after the rest, tables
// last. It returns at once. A pass that needs a segment before its turn loads it itself, first.
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
		w.err, w.end, w.took = err, err == nil, time.Since(w.start)
		w.mu.Unlock()
		if err == nil {
			w.after.Go(func() {
				// Without it a new date counts as a change, which is all that an error means.
				_ = s.binding.Checkpoint().HashFiles(ctx, true, s.whenQuiet(quietFor, busyWaits))
			})
		}
	}()
}

const (
	// quietFor is how long no pass may have needed a unit before a background read goes on.
	quietFor = time.Second
	// busyWaits is how many times as long as its last read a background read waits at most: passes that
	// never cease leave it a fiftieth of the time.
	busyWaits = 49
)

// whenQuiet returns a pace for reads in the background. It returns at once while no unit is
// acquired, and otherwise waits until none was for the given time, so that passes have the disk
// for themselves; but no longer than waits times the time since it returned last, which was a read.
func (s *Store) whenQuiet(quiet time.Duration, waits int) func(context.Context) error {
	seen, last := s.acquired.Load(), time.Now()
	var timer *time.Timer // one for all waits, as tokens are generated meanwhile
	return func(ctx context.Context) error {
		begin := time.Now()
		most := begin.Sub(last) * time.Duration(waits)
		defer func() { last = time.Now() }()
		for {
			now, left := s.acquired.Load(), most-time.Since(begin)
			if now == seen || left <= 0 {
				return ctx.Err()
			}
			seen = now
			if timer == nil {
				timer = time.NewTimer(min(quiet, left))
			} else {
				timer.Reset(min(quiet, left))
			}
			select {
			case <-ctx.Done():
				timer.Stop()
				return ctx.Err()
			case <-timer.C:
			}
		}
	}
}

// Warming tells how far Warm is.
func (s *Store) Warming() Progress {
	w := &s.warm
	w.mu.Lock()
	defer w.mu.Unlock()
	p := Progress{UnitsDone: int(w.units.Load()), UnitsTotal: len(s.units), BytesDone: w.bytes.Load(),
		BytesTotal: s.tiers[devicemap.CPU], Started: w.started, Done: w.end, Err: w.err}
	if w.end {
		p.Seconds = w.took.Seconds()
	}
	if took := time.Since(w.start).Seconds(); w.started && !w.end && p.BytesDone > 0 {
		p.SecondsLeft = took * float64(p.BytesTotal-p.BytesDone) / float64(p.BytesDone)
	}
	return p
}

// finished is closed when Warm is done; at once where it was never called.
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

func (w *progress) stop() {
	w.mu.Lock()
	cancel, done := w.cancel, w.done
	w.mu.Unlock()
	if cancel != nil {
		cancel()
		<-done
	}
	w.after.Wait()
}

// A visit is a segment that Warm loads, and the unit that uses it.
type visit struct {
	*segment
	unit int
}

// visits lists the segments of the cpu tier in the order of use, but experts, of which a token uses a
// few, after the rest, and tables, of which it uses a row, last.
func (s *Store) visits() []visit {
	var out, experts, tables []visit
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
				out = append(out, visit{w.segment, i})
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
	return slices.Concat(out, experts, tables)
}

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

// loaders is the number of segments that Warm loads at a time, so that the next one is read while one
// is moved into place.
const loaders = 4

// warming is the state that loaders share.
type warming struct {
	store  *Store
	mu     sync.Mutex // guards what follows
	visits []visit
	left   []int // visits of each unit that are not done
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
			w.ahead.pass(v.size())
		}
		w.mu.Unlock()
		if err := w.store.warmOne(ctx, v.segment); err != nil {
			return err
		}
		w.mu.Lock()
		if w.left[v.unit]--; w.left[v.unit] == 0 {
			w.store.warm.units.Add(1)
		}
		w.mu.Unlock()
	}
}

// warmOne loads g and counts its bytes.
func (s *Store) warmOne(ctx context.Context, g *segment) error {
	c, err := s.load(ctx, g, Background)
	if err == nil && c == nil && !g.displaced.Load() {
		err = s.populate(ctx, g)
	}
	if err != nil {
		return err
	}
	for k := range g.pieces {
		n := g.pieces[k].Size
		if g.converted[k] { // as the total counts it, also where it stays as stored
			_, n, _ = s.quantizer.converted(&g.pieces[k]) // load has checked it
		}
		s.warm.bytes.Add(n)
	}
	return nil
}

// unmapCopied unmaps the pages of copied segments once more: reading their neighbours may have mapped
// them again, as the system maps whole huge pages of a file.
func (s *Store) unmapCopied() {
	for _, g := range s.copies.order {
		if g.copied.Load() != nil {
			g.unmap()
		}
	}
}

// A readAhead asks the system for the bytes that are converted next, across segments, so that the
// disk does not wait for conversions.
type readAhead struct {
	store  *Store
	visits []visit        // not looked at yet
	ranges []stored.Range // not asked for yet, in order
	lead   int64          // bytes asked for beyond those passed
}

// pass notes that the next n bytes are about to be read, and asks for more.
func (a *readAhead) pass(n int64) {
	for a.lead -= n; a.lead < warmWindow; {
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
		a.lead += part
		r.Begin, r.Size = r.Begin+part, r.Size-part
		if r.Size == 0 {
			a.ranges = a.ranges[1:]
		}
	}
}

// touchPages reads a byte of each page.
func touchPages(t *loader.Tensor, off, n int64) error {
	data, err := t.Bytes()
	if err != nil {
		return err
	}
	err = reading(t, func() {
		var sum byte
		for i := off; i < off+n; i += blockSize {
			sum += data[i]
		}
		touched.Store(uint32(sum))
	})
	if err != nil {
		return fmt.Errorf("residency: %w", err)
	}
	return nil
}

// touched keeps the reads from being left out.
var touched atomic.Uint32
