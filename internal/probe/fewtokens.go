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

// A TokensRate is the rate of products of some tokens with weights that come from memory. That of one token is without the time
// that an operation takes whatever its size.
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
	// sweepRounds is how often each kind is measured, with the other kinds in between. A quarter of all products is faster than
	// what counts: a thread that sleeps or is taken away makes those of a round slow.
	sweepRounds = 3
	// wideTokens is the number of tokens from which one product is enough: it takes long.
	wideTokens = 256
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
	took := make([][len(tokenCounts)][]time.Duration, len(kinds))
	for range sweepRounds {
		floats, err := s.floats(ctx)
		if err != nil {
			return err
		}
		r.FloatsPerSecond = max(r.FloatsPerSecond, floats)
		for i, k := range kinds {
			if err := s.measure(ctx, k, variant, &took[i]); err != nil {
				return err
			}
		}
	}
	for i := range kinds {
		for at, tokens := range tokenCounts {
			slices.Sort(took[i][at])
			quarter := took[i][at][len(took[i][at])/4]
			r.Compute[i].ByTokens = append(r.Compute[i].ByTokens, TokensRate{tokens, 2 * float64(tokens*sweepWeights) / max(quarter.Seconds(), 1e-9)})
		}
	}
	r.withoutStart()
	return nil
}

// withoutStart sets OperationSeconds to what the products of one token took longer than reading their weights, and takes it from
// the products of one token of all kinds.
func (r *Rates) withoutStart() {
	memory := r.MemoryAt(r.Compute[0].Threads)
	for i, k := range kinds {
		if k == generating {
			r.OperationSeconds = max(0, 2*sweepWeights/r.Compute[i].ByTokens[0].OperationsPerSecond-float64(k.dtype.Bytes(sweepWeights))/memory)
		}
	}
	for i := range r.Compute {
		one := &r.Compute[i].ByTokens[0].OperationsPerSecond
		took := 2 * sweepWeights / *one
		*one = 2 * sweepWeights / max(took-r.OperationSeconds, took/2)
	}
}

// measure adds the times of products of a kind, by tokens.
func (s *sweep) measure(ctx context.Context, k kind, variant string, took *[len(tokenCounts)][]time.Duration) error {
	s.fill()
	w, size, err := k.shape(sweepRows, variant)
	if err != nil {
		return err
	}
	left := s.memory.Data
	for i, tokens := range tokenCounts {
		n := max(1, len(s.memory.Data)/4/size)
		if tokens >= wideTokens {
			n = 1
		}
		p := backend.Product{Dst: s.y.Slice(0, tokens), X: s.x.Slice(0, tokens), W: w, Rounded: k.rounded, Role: backend.Prompt}
		if tokens == 1 {
			p.Role = backend.Generated
		}
		for done := 0; done < n && len(left) >= size && (done == 0 || ctx.Err() == nil); done++ {
			p.W.Data, left = left[:size], left[size:]
			start := time.Now()
			s.b.Products([]backend.Product{p})
			took[i] = append(took[i], time.Since(start))
		}
	}
	return s.b.Sync()
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
