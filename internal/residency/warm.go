package residency

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/loader"
)

const (
	// warmWindow is how far ahead of touching it the disk is asked for what comes next.
	warmWindow = 128 << 20
	// warmStep is what is asked for, and touched, at a time.
	warmStep = 32 << 20
)

// Progress says how much of the cpu tier has been read. It may be read from any
// goroutine.
type Progress struct {
	UnitsDone, UnitsTotal int
	BytesDone, BytesTotal int64
	SecondsLeft           float64 // by the rate so far; 0 when done or unknown
	Seconds               float64 // that it took, once done
	Done                  bool
	Err                   error
}

type progress struct {
	cancel  context.CancelFunc
	done    chan struct{}
	start   time.Time
	took    time.Duration
	units   atomic.Int64
	bytes   atomic.Int64
	total   int64
	count   int
	mu      sync.Mutex
	err     error
	end     bool
	started bool
}

// Warm reads the cpu tier in the order of use, in the background, and converts what is to
// be converted. It returns at once; Warming tells how far it is.
func (s *Store) Warm(ctx context.Context) {
	w := &s.warm
	ctx, cancel := context.WithCancel(ctx)
	w.mu.Lock()
	w.cancel, w.done, w.start, w.started = cancel, make(chan struct{}), time.Now(), true
	w.total, w.count = s.tiers[devicemap.CPU], len(s.units)
	w.mu.Unlock()
	go func() {
		defer close(w.done)
		err := s.warmAll(ctx)
		w.mu.Lock()
		w.err, w.end, w.took = err, err == nil, time.Since(w.start)
		w.mu.Unlock()
	}()
}

// Warming tells how far Warm is.
func (s *Store) Warming() Progress {
	w := &s.warm
	w.mu.Lock()
	defer w.mu.Unlock()
	p := Progress{UnitsDone: int(w.units.Load()), UnitsTotal: len(s.units), BytesDone: w.bytes.Load(),
		BytesTotal: s.tiers[devicemap.CPU], Done: w.end, Err: w.err}
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
}

// A visit is what Warm brings at a time: pieces to touch, or an entry or an expert to convert.
type visit struct {
	unit    int // whose last visit ends it
	pieces  []piece
	convert func(ctx context.Context) (*conversion, error) // nil for pieces to touch
}

// visits are the weights of the cpu tier in the order of use. Tables come last: the rows that
// a lookup wants are few, and the mapping brings them by itself.
func (s *Store) visits() []visit {
	type use struct {
		*entry
		convert bool
	}
	var out, tables []visit
	seen := map[use]bool{}
	for i := range s.units {
		u := &s.units[i]
		for _, w := range u.wants {
			this := use{w.entry, w.convert}
			if w.device != devicemap.CPU || seen[this] {
				continue
			}
			seen[this] = true
			v := visit{unit: i, pieces: w.pieces}
			if w.convert {
				v.convert = func(ctx context.Context) (*conversion, error) { return s.convertEntry(ctx, w.entry) }
			}
			if w.gather {
				tables = append(tables, v)
			} else {
				out = append(out, v)
			}
		}
		for _, n := range u.Experts {
			out = s.expertVisits(out, i, s.stacks[n.Module])
		}
	}
	return append(out, tables...)
}

// expertVisits adds those of a stack's experts that live in memory. It looks their pieces up
// for itself, as what HoldExpert keeps belongs to another goroutine.
func (s *Store) expertVisits(to []visit, unit int, st *stack) []visit {
	for e := range st.experts {
		if st.experts[e].device != devicemap.CPU {
			continue
		}
		var convert, touch []piece
		for _, p := range st.params {
			if s.converts(p) {
				convert = append(convert, s.expertPieces(p, e)...)
			} else {
				touch = append(touch, s.expertPieces(p, e)...)
			}
		}
		if st.convert {
			to = append(to, visit{unit: unit, pieces: convert, convert: func(ctx context.Context) (*conversion, error) {
				return s.convertExpert(ctx, st, e)
			}})
		}
		if len(touch) > 0 {
			to = append(to, visit{unit: unit, pieces: touch})
		}
	}
	return to
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
	ahead := newReadAhead(visits)
	for i := range visits {
		v := &visits[i]
		if err := s.bringVisit(ctx, v, ahead); err != nil {
			return err
		}
		if left[v.unit]--; left[v.unit] == 0 {
			s.warm.units.Add(1)
		}
	}
	return s.finishSidecar(ctx)
}

func (s *Store) bringVisit(ctx context.Context, v *visit, ahead *readAhead) error {
	if v.convert != nil {
		ahead.pass(sizeOf(v.pieces))
		made, err := v.convert(ctx)
		if err == nil {
			s.warm.bytes.Add(made.bytes)
		}
		return err
	}
	if err := s.makePieces(ctx, v.pieces); err != nil {
		return err
	}
	for i := range v.pieces {
		if err := s.touch(ctx, &v.pieces[i], ahead); err != nil {
			return err
		}
	}
	return nil
}

func sizeOf(pieces []piece) (n int64) {
	for i := range pieces {
		n += pieces[i].size
	}
	return n
}

// touch brings the pages of a piece into memory.
func (s *Store) touch(ctx context.Context, p *piece, ahead *readAhead) error {
	for _, r := range p.ranges {
		for off := int64(0); off < r.size; off += warmStep {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(warmStep, r.size-off)
			ahead.pass(n)
			if err := touchPages(r.tensor, r.begin+off, n); err != nil {
				return err
			}
			s.warm.bytes.Add(n)
		}
	}
	return nil
}

// A readAhead asks the system for what comes next, across the bounds of tensors, so that the
// disk never waits.
type readAhead struct {
	ranges []byteRange // what has not been asked for, in order
	lead   int64       // bytes asked for beyond those passed
}

func newReadAhead(visits []visit) *readAhead {
	a := &readAhead{}
	for i := range visits {
		for k := range visits[i].pieces {
			a.ranges = append(a.ranges, visits[i].pieces[k].ranges...)
		}
	}
	return a
}

// pass notes that the next n bytes are about to be read, and asks for more.
func (a *readAhead) pass(n int64) {
	for a.lead -= n; a.lead < warmWindow && len(a.ranges) > 0; {
		r := &a.ranges[0]
		part := min(r.size, warmStep)
		_ = r.tensor.Advise(r.begin, part, loader.WillNeed) // only a hint
		a.lead += part
		r.begin, r.size = r.begin+part, r.size-part
		if r.size == 0 {
			a.ranges = a.ranges[1:]
		}
	}
}

// touchPages reads a byte of each page. A file that was cut short is an error.
func touchPages(t *loader.Tensor, off, n int64) (err error) {
	data, err := t.Bytes()
	if err != nil {
		return err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			err = fmt.Errorf("residency: %s could not be read: its file was cut short or its disk failed", t.Name)
		}
	}()
	var sum byte
	for i := off; i < off+n; i += blockSize {
		sum += data[i]
	}
	touched.Store(uint32(sum))
	return nil
}

// touched keeps the reads from being left out.
var touched atomic.Uint32
