package residency

import (
	"cmp"
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
	// warmWindow is how far ahead of a conversion the disk is asked for what comes next.
	warmWindow = 128 << 20
	// warmStep is what is brought at a time: so much that the reader, which waits for a
	// processor whenever it comes back, seldom does.
	warmStep = 64 << 20
)

// Progress says how much of the cpu tier has been read. It may be read from any
// goroutine.
type Progress struct {
	UnitsDone, UnitsTotal int
	BytesDone, BytesTotal int64
	SecondsLeft           float64 // by the rate so far; 0 when done or unknown
	Seconds               float64 // that it took, once done
	Started, Done         bool
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
	changed sync.Cond // an entry was brought, or the end came
	err     error
	end     bool // without an error
	over    bool
	started bool
	after   sync.WaitGroup // what goes on when everything is warm
}

// The states of an entry that Warm brings. One that computes waits for it rather than
// fault its pages in one by one, in the way of the reader: both go in the order of use.
const (
	warmLater = 1 + iota
	warmNow
)

// await returns when Warm, where it runs, has brought e, and how long that took.
func (w *progress) await(e *entry) time.Duration {
	if e.warm.Load() != warmLater {
		return 0
	}
	since := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for e.warm.Load() == warmLater && !w.over {
		w.changed.Wait()
	}
	return time.Since(since)
}

// brought notes that entries are in memory.
func (w *progress) brought(entries []*entry) {
	w.mu.Lock()
	for _, e := range entries {
		e.warm.Store(warmNow)
	}
	w.mu.Unlock()
	w.changed.Broadcast()
}

// Warm reads the CPU tier in the order of use, in the background, converts the weights that need
// it, and reads the first units of the disk tier ahead. It returns at once; Warming tells how far it
// is.
func (s *Store) Warm(ctx context.Context) {
	if s.ring != nil && s.acquired.Load() == 0 {
		s.ring.request(s.fromTheFirst(), LookAhead)
	}
	w := &s.warm
	ctx, cancel := context.WithCancel(ctx)
	w.mu.Lock()
	w.cancel, w.done, w.start, w.started = cancel, make(chan struct{}), time.Now(), true
	w.total, w.count = s.tiers[devicemap.CPU], len(s.units)
	w.mu.Unlock()
	visits := s.visits()
	for i := range visits {
		for _, e := range visits[i].entries {
			e.warm.Store(warmLater)
		}
	}
	go func() {
		defer close(w.done)
		err := s.warmAll(ctx, visits)
		w.mu.Lock()
		w.err, w.end, w.over, w.took = err, err == nil, true, time.Since(w.start)
		w.mu.Unlock()
		w.changed.Broadcast()
		if err == nil {
			w.after.Go(func() {
				// Without it a new date counts as a change, which is all that an error means.
				_ = s.binding.Checkpoint().HashFiles(ctx, s.tiers[devicemap.Disk] > 0, s.whenQuiet(quietFor))
			})
		}
	}()
}

// fromTheFirst returns the loads in the order of a whole pass.
func (s *Store) fromTheFirst() []int {
	ids := make([]int, len(s.streamed))
	for i := range ids {
		ids[i] = i
	}
	return ids
}

// quietFor is how long no pass may have needed a unit before a background read goes on.
const quietFor = time.Second

// whenQuiet returns a pace for reads in the background. It returns at once while no unit is
// acquired, and otherwise waits until none was for the given time, so that passes have the disk
// for themselves.
func (s *Store) whenQuiet(quiet time.Duration) func(context.Context) error {
	seen := s.acquired.Load()
	return func(ctx context.Context) error {
		for {
			now := s.acquired.Load()
			if now == seen {
				return ctx.Err()
			}
			seen = now
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(quiet):
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

// A visit is what Warm brings at a time: what a unit or an expert uses as it is stored, or an
// entry or an expert to convert.
type visit struct {
	unit    int // whose last visit ends it
	entries []*entry
	pieces  []stored.Piece
	convert func(ctx context.Context) (*conversion, error) // nil for pieces as they are stored
}

func (v *visit) add(e *entry) {
	v.entries, v.pieces = append(v.entries, e), append(v.pieces, e.pieces...)
}

// visits are the weights of the cpu tier in the order of use, but for experts, of which a
// token uses a few, and tables, of which it uses a row: they come last, and the mapping brings
// what is wanted before.
func (s *Store) visits() []visit {
	type use struct {
		*entry
		convert bool
	}
	var out, experts, tables []visit
	seen := map[use]bool{}
	for i := range s.units {
		u := &s.units[i]
		plain, table := visit{unit: i}, visit{unit: i}
		var convert []visit
		for _, w := range u.wants {
			this := use{w.entry, w.convert}
			if w.device != devicemap.CPU || seen[this] {
				continue
			}
			seen[this] = true
			switch {
			case w.convert:
				convert = append(convert, visit{unit: i, pieces: w.pieces, convert: func(ctx context.Context) (*conversion, error) {
					return s.convertEntry(ctx, w.entry)
				}})
			case w.gather:
				table.add(w.entry)
			default:
				plain.add(w.entry)
			}
		}
		if len(plain.entries) > 0 {
			out = append(out, plain)
		}
		out = append(out, convert...)
		if len(table.entries) > 0 {
			tables = append(tables, table)
		}
		for _, n := range u.Experts {
			experts = s.expertVisits(experts, i, s.stacks[n.Module])
		}
	}
	return slices.Concat(out, experts, tables)
}

// expertVisits adds those of a stack's experts that live in memory. It looks their pieces up
// for itself, as what HoldExperts keeps belongs to another goroutine.
func (s *Store) expertVisits(to []visit, unit int, st *stack) []visit {
	for e := range st.experts {
		if st.experts[e].device != devicemap.CPU {
			continue
		}
		var convert, touch []stored.Piece
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

func (s *Store) warmAll(ctx context.Context, visits []visit) error {
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
	s.quantizer.letGo()
	return s.finishSidecar(ctx)
}

func (s *Store) bringVisit(ctx context.Context, v *visit, ahead *readAhead) error {
	if v.convert != nil && !s.copies.hasRoom(s.quantizer.sizesOf(v.pieces)) {
		return nil // converted before its use
	}
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
	for _, x := range spans(v.pieces) {
		if err := s.touch(ctx, x); err != nil {
			return err
		}
	}
	s.warm.brought(v.entries)
	return nil
}

func sizeOf(pieces []stored.Piece) (n int64) {
	for i := range pieces {
		n += pieces[i].Size
	}
	return n
}

// A span is ranges that lie side by side in a file.
type span struct {
	ranges    []stored.Range
	off, size int64 // in the file
}

// spans lays the ranges of pieces out as their files have them: what is read in one go comes
// faster than tensor by tensor.
func spans(pieces []stored.Piece) []span {
	var out []span
	for i := range pieces {
		for _, r := range pieces[i].Ranges {
			out = append(out, span{[]stored.Range{r}, r.Tensor.Offset + r.Begin, r.Size})
		}
	}
	slices.SortStableFunc(out, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.file().Path, b.file().Path), cmp.Compare(a.off, b.off))
	})
	n := 0
	for _, x := range out {
		if n > 0 && out[n-1].file() == x.file() && out[n-1].off+out[n-1].size == x.off {
			last := &out[n-1]
			last.ranges, last.size = append(last.ranges, x.ranges...), last.size+x.size
			continue
		}
		out[n] = x
		n++
	}
	return out[:n]
}

func (x *span) file() *loader.File { return x.ranges[0].Tensor.File }

// touch brings the pages of a span into memory.
func (s *Store) touch(ctx context.Context, x span) error {
	for done := int64(0); done < x.size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(warmStep, x.size-done)
		if x.file().Advise(x.off+done, n, loader.Populate) != nil {
			s.warm.bytes.Add(-done)
			return s.touchRanges(ctx, x.ranges)
		}
		s.warm.bytes.Add(n)
		done += n
	}
	return nil
}

// touchRanges is touch where the system cannot, or where a file was cut, which it tells.
func (s *Store) touchRanges(ctx context.Context, ranges []stored.Range) error {
	for _, r := range ranges {
		for off := int64(0); off < r.Size; off += warmStep {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(warmStep, r.Size-off)
			_ = r.Tensor.Advise(r.Begin+off, n, loader.WillNeed) // only a hint
			if err := touchPages(r.Tensor, r.Begin+off, n); err != nil {
				return err
			}
			s.warm.bytes.Add(n)
		}
	}
	return nil
}

// A readAhead asks the system for what is converted next, across the bounds of tensors, so
// that the disk never waits.
type readAhead struct {
	ranges []stored.Range // what has not been asked for, in order
	lead   int64          // bytes asked for beyond those passed
}

func newReadAhead(visits []visit) *readAhead {
	a := &readAhead{}
	for i := range visits {
		if visits[i].convert == nil {
			continue // brought in one go
		}
		for k := range visits[i].pieces {
			a.ranges = append(a.ranges, visits[i].pieces[k].Ranges...)
		}
	}
	return a
}

// pass notes that the next n bytes are about to be read, and asks for more.
func (a *readAhead) pass(n int64) {
	for a.lead -= n; a.lead < warmWindow && len(a.ranges) > 0; {
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
