package probe

import (
	"context"
	"slices"
	"time"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// A TokensRate is the rate of products of some tokens with weights that come from memory. That of
// one token excludes Rates.OperationSeconds.
type TokensRate struct {
	Tokens              int     `json:"tokens"`
	OperationsPerSecond float64 `json:"operations_per_second"`
}

// tokenCounts are the numbers of tokens that are measured: that of a generated token, those that an expert multiplies of a
// prompt.
var tokenCounts = [...]int{1, 16, 64, 256}

const (
	sweepBytes   = 32 << 20 // of weights, which are filled past the caches before they are read once
	leastSweep   = 16 << 20
	sweepRows    = 512 // of a product: at 2048 columns about as many weights as an expert has
	sweepWeights = sweepRows * productCols
	// sweepRounds is how often each kind is measured, with the other kinds in between. The median of
	// the fastest round counts: a thread that sleeps or is taken away makes a whole round slow.
	sweepRounds = 5
	// wideTokens is the number of tokens from which one product is enough: it takes long.
	wideTokens = 256
	// startRows is the number of rows per thread of a product that is mostly its start, and
	// startProducts how often it is measured in a round. Together they read at most 1 MiB.
	startRows     = 8
	startProducts = 16
)

// A sweep multiplies piece after piece of weights that come from memory.
type sweep struct {
	b      *cpu.Backend
	memory tensor.Tensor // of weights
	x, y   tensor.Tensor
	gate   tensor.Tensor // as large as y
}

// byTokens measures the products of all kinds for each of tokenCounts. Without memory for the weights it measures nothing.
func (r *Rates) byTokens(ctx context.Context, b *cpu.Backend, o Options, variant string) (err error) {
	s := sweep{b: b}
	room := int64(sweepBytes)
	if len(r.Memory) == 0 {
		return nil
	}
	if o.MemoryBytes != 0 {
		room = min(room, o.MemoryBytes/2)
	}
	if room < leastSweep {
		return nil
	}
	if s.memory, err = b.New(meta.Uint8, int(room)); err != nil {
		return err
	}
	defer b.Free(s.memory)
	x, y, free, err := operands(b, slices.Max(tokenCounts[:]), sweepRows)
	if err != nil {
		return err
	}
	defer free()
	if s.gate, err = b.New(meta.Float32, y.Dims[0], y.Dims[1]); err != nil {
		return err
	}
	defer b.Free(s.gate)
	s.x, s.y = x, y
	took := make([][len(tokenCounts)]fastestRound, len(kinds))
	var starts fastestRound
	rows := min(startRows*o.Threads[len(o.Threads)-1], sweepRows/4)
	for range sweepRounds {
		floats, err := s.floats(ctx)
		if err != nil {
			return err
		}
		r.FloatsPerSecond = max(r.FloatsPerSecond, floats)
		for i, k := range kinds {
			left, err := s.measure(ctx, k, variant, &took[i])
			if err == nil && k == generating {
				err = s.start(ctx, rows, left, variant, &starts)
			}
			if err != nil {
				return err
			}
		}
	}
	for i := range kinds {
		for at, tokens := range tokenCounts {
			r.Compute[i].ByTokens = append(r.Compute[i].ByTokens, TokensRate{tokens, 2 * float64(tokens*sweepWeights) / max(took[i][at].Seconds(), 1e-9)})
		}
	}
	if starts.known {
		r.withoutStart(starts.Seconds(), rows)
	}
	return nil
}

// A fastestRound is the least of the medians of several rounds.
type fastestRound struct {
	time.Duration
	known bool
}

// add adds a round. It does nothing with an empty one.
func (f *fastestRound) add(took []time.Duration) {
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	if median := took[len(took)/2]; !f.known || median < f.Duration {
		f.Duration, f.known = median, true
	}
}

// withoutStart sets OperationSeconds, and subtracts it from the products of one token of all kinds.
// A product of few rows took small seconds, and one of sweepRows the measured ones: on a line
// through both, OperationSeconds is the time of a product without rows. The time of one product
// less that of reading its weights at the rate of memory would be a difference of two large
// numbers: it was 0 to 30 µs in probes of one idle machine.
func (r *Rates) withoutStart(small float64, rows int) {
	took := func(i int) float64 { return 2 * sweepWeights / r.Compute[i].ByTokens[0].OperationsPerSecond }
	i := slices.Index(kinds, generating)
	r.OperationSeconds = max(0, small-max(took(i)-small, 0)*float64(rows)/float64(sweepRows-rows))
	for i := range r.Compute {
		r.Compute[i].ByTokens[0].OperationsPerSecond = 2 * sweepWeights / max(took(i)-r.OperationSeconds, took(i)/2)
	}
}

// start adds a round of products of one token with few rows, whose weights are in left.
func (s *sweep) start(ctx context.Context, rows int, left []byte, variant string, took *fastestRound) error {
	w, size, err := generating.shape(rows, variant)
	if err != nil {
		return err
	}
	p := backend.Product{Dst: s.y.Slice(0, 1).Columns(0, rows), X: s.x.Slice(0, 1), W: w, Rounded: generating.rounded, Role: backend.Generated}
	list, _ := s.times(ctx, p, size, startProducts, left)
	took.add(list)
	return s.b.Sync()
}

// measure adds a round of products of a kind, by tokens. It returns the memory that no product has
// read since it was filled.
func (s *sweep) measure(ctx context.Context, k kind, variant string, took *[len(tokenCounts)]fastestRound) (left []byte, err error) {
	s.fill()
	w, size, err := k.shape(sweepRows, variant)
	if err != nil {
		return nil, err
	}
	left = s.memory.Data
	for i, tokens := range tokenCounts {
		n := max(1, len(s.memory.Data)/4/size)
		if tokens >= wideTokens {
			n = 1
		}
		p := backend.Product{Dst: s.y.Slice(0, tokens), X: s.x.Slice(0, tokens), W: w, Rounded: k.rounded, Role: backend.Prompt}
		if tokens == 1 {
			p.Role = backend.Generated
		}
		var list []time.Duration
		list, left = s.times(ctx, p, size, n, left)
		took[i].add(list)
	}
	return left, s.b.Sync()
}

// times returns how long up to n products take that each read the next size bytes of left, and the
// rest of left.
func (s *sweep) times(ctx context.Context, p backend.Product, size, n int, left []byte) (took []time.Duration, rest []byte) {
	for done := 0; done < n && len(left) >= size && (done == 0 || ctx.Err() == nil); done++ {
		p.W.Data, left = left[:size], left[size:]
		start := time.Now()
		s.b.Products([]backend.Product{p})
		took = append(took, time.Since(start))
	}
	return took, left
}

// fill writes the weights past the caches, some at a time: an operation in between keeps the other threads awake. A thread that
// sleeps may take milliseconds to wake, longer than all products of a round.
func (s *sweep) fill() {
	const some = 1 << 20 // a tenth of a millisecond
	for data := aligned(s.memory.Data); len(data) > 0; data = data[min(some, len(data)):] {
		write(data[:min(some, len(data))])
		y := s.y.Slice(0, 128)
		s.b.Gate(y, s.gate.Slice(0, 128), y, meta.ActSiLU, 0)
	}
}

// operands are the tokens of products and their results.
func operands(b *cpu.Backend, tokens, rows int) (x, y tensor.Tensor, free func(), err error) {
	if x, err = b.New(meta.Float32, tokens, productCols); err != nil {
		return x, y, nil, err
	}
	if y, err = b.New(meta.Float32, tokens, rows); err != nil {
		b.Free(x)
		return x, y, nil, err
	}
	return x, y, func() { b.Free(x); b.Free(y) }, nil
}

// floats measures what passes take besides products: the floats per second that an operation moves which computes each
// number from two.
func (s *sweep) floats(ctx context.Context) (float64, error) {
	best := time.Hour
	for i := 0; i == 0 || i < gateRounds && ctx.Err() == nil; i++ {
		start := time.Now()
		s.b.Gate(s.y, s.gate, s.y, meta.ActSiLU, 0)
		best = min(best, time.Since(start))
	}
	return float64(3*s.y.Elements()) / max(best.Seconds(), 1e-9), s.b.Sync()
}

// gateRounds is how often floats measures. The fastest round counts.
const gateRounds = 12
