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

// warmWindow is what is asked of the disk at a time, ahead of touching it.
const warmWindow = 64 << 20

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

func (s *Store) warmAll(ctx context.Context) error {
	type use struct {
		*entry
		convert bool
	}
	seen := map[use]bool{}
	for i := range s.units {
		u := &s.units[i]
		for _, want := range u.wants {
			this := use{want.entry, want.convert}
			if want.device != devicemap.CPU || seen[this] {
				continue
			}
			seen[this] = true
			if want.convert {
				made, err := s.convertEntry(ctx, want.entry)
				if err != nil {
					return err
				}
				s.warm.bytes.Add(made.bytes)
				continue
			}
			for k := range want.pieces {
				if err := s.touch(ctx, &want.pieces[k]); err != nil {
					return err
				}
			}
		}
		for _, n := range u.Experts {
			if err := s.warmExperts(ctx, s.stacks[n.Module]); err != nil {
				return err
			}
		}
		s.warm.units.Add(1)
	}
	return nil
}

// warmExperts touches the experts of a stack that live in memory. It looks their pieces up
// for itself, as what HoldExpert keeps belongs to another goroutine.
func (s *Store) warmExperts(ctx context.Context, st *stack) error {
	for e := range st.experts {
		if st.experts[e].device != devicemap.CPU {
			continue
		}
		if st.convert {
			made, err := s.convertExpert(ctx, st, e)
			if err != nil {
				return err
			}
			s.warm.bytes.Add(made.bytes)
		}
		for _, p := range st.params {
			if s.quantizer.takes(p) {
				continue
			}
			for _, piece := range s.expertPieces(p, e) {
				if err := s.touch(ctx, &piece); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// touch brings the pages of a piece into memory.
func (s *Store) touch(ctx context.Context, p *piece) error {
	for _, r := range p.ranges {
		for off := int64(0); off < r.size; off += warmWindow {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(warmWindow, r.size-off)
			if off+n < r.size {
				_ = r.tensor.Advise(r.begin+off+n, min(warmWindow, r.size-off-n), loader.WillNeed) // only a hint
			}
			if err := touchPages(r.tensor, r.begin+off, n); err != nil {
				return err
			}
			s.warm.bytes.Add(n)
		}
	}
	return nil
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
