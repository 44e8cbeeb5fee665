package replicas

import (
	"context"
	"fmt"

	"github.com/heftai/heft/internal/collective"
	"github.com/heftai/heft/train/tensor"
)

// bucketBytes is the size of gradients that are exchanged together, as in torch.
const bucketBytes = 25 << 20

// inFlight is the number of buckets by which a rank's pass may be ahead if ranks share memory.
const inFlight = 2

// A Bucket holds parameters whose gradients are exchanged together. All ranks have the same
// buckets.
type Bucket struct {
	Params []*tensor.Parameter
	// At is the offset of each parameter in the bucket's numbers. Len is the total number.
	At  []int
	Len int

	module *Module
}

// Bounds returns the range of elements of parameter i that lie in [lo, hi) of the bucket.
func (b *Bucket) Bounds(i, lo, hi int) (first, last int) {
	n := b.Params[i].Len()
	first = min(max(lo-b.At[i], 0), n)
	return first, max(first, min(hi-b.At[i], n))
}

// makeBuckets divides the parameters of m into buckets, the last ones first, because backward
// reaches them first.
func makeBuckets(m *Module, limit int) []*Bucket {
	var all []*Bucket
	var b *Bucket
	for i := len(m.Params) - 1; i >= 0; i-- {
		p := m.Params[i]
		n := p.Len()
		if !p.Trainable {
			n = 0 // without a gradient, unless it is made trainable later
		}
		if b == nil || b.Len > 0 && 4*(b.Len+n) > limit {
			b = &Bucket{module: m}
			all = append(all, b)
		}
		b.Params, b.At = append(b.Params, p), append(b.At, b.Len)
		b.Len += n
	}
	return all
}

// A Pass averages the gradients of one backward pass, bucket by bucket, while the pass runs.
// Buckets are exchanged in the same order on all ranks. It must be used only by the goroutine of
// the pass.
type Pass struct {
	g       *Group
	ctx     context.Context
	queue   collective.Queue
	buckets []*Bucket
	missing []int                // by bucket: parameters whose gradient is not complete
	next    int                  // the first bucket that is not queued
	handles []*collective.Handle // of the queued buckets
	of      map[*tensor.Parameter]int
	reached []bool
}

// Begin starts to average the gradients of the modules that the pass reaches and that
// synchronise. It returns nil if there are none. All ranks must call it together.
func (g *Group) Begin(ctx context.Context, reached []bool) (*Pass, error) {
	any := false
	for i, m := range g.Modules {
		any = any || reached[i] && m.Sync
	}
	if !any {
		return nil, nil
	}
	if g.Joining {
		if _, err := g.AnyActive(ctx, true); err != nil {
			return nil, err
		}
	}
	p := &Pass{g: g, ctx: ctx, queue: collective.Queue{Comm: g.Comm}, of: map[*tensor.Parameter]int{}, reached: reached}
	for _, m := range g.Modules {
		for _, b := range m.buckets {
			missing := 0
			for _, x := range b.Params {
				if x.Trainable {
					p.of[x] = len(p.buckets)
					missing++
				}
			}
			p.buckets, p.missing = append(p.buckets, b), append(p.missing, missing)
		}
	}
	return p, nil
}

// Ready reports to p that the gradient of x is complete in this pass.
func (p *Pass) Ready(x *tensor.Parameter) {
	i, ok := p.of[x]
	if !ok {
		return
	}
	delete(p.of, x)
	p.missing[i]--
	for p.next < len(p.buckets) && p.missing[p.next] == 0 {
		p.launch()
	}
}

func (p *Pass) launch() {
	b := p.buckets[p.next]
	p.next++
	active := false
	for i, m := range p.g.Modules {
		active = active || m == b.module && m.Sync && p.reached[i]
	}
	p.handles = append(p.handles, p.queue.Go(func(collective.Comm) error { return p.g.reduce(p.ctx, b, active, false) }))
	if n := len(p.handles) - inFlight; n > 0 && p.g.shared() != nil {
		_ = p.handles[n-1].Wait() // the memory of its gradients is reused; Finish returns the error
	}
}

// Finish exchanges the remaining buckets, waits for all, and copies rank 0's buffers to all
// ranks.
func (p *Pass) Finish() error {
	for p.next < len(p.buckets) {
		p.launch()
	}
	if err := p.Wait(); err != nil {
		return err
	}
	if err := p.g.shareBuffers(p.ctx); err != nil {
		return fmt.Errorf("train: buffers: %w", err)
	}
	return nil
}

// Wait waits for the buckets whose exchange has begun, as after a failed pass.
func (p *Pass) Wait() error {
	if err := p.queue.Wait(); err != nil {
		return fmt.Errorf("train: gradients: %w", err)
	}
	return nil
}

// Average averages the gradients of a pass that has ended.
func (g *Group) Average(ctx context.Context, reached []bool) error {
	p, err := g.Begin(ctx, reached)
	if p == nil || err != nil {
		return err
	}
	return p.Finish()
}

// reduce averages a bucket. The ranks first agree on the parameters that have a gradient on any
// rank. A parameter without one on this rank counts as zeros. A shadow contributes only zeros and
// keeps nothing.
func (g *Group) reduce(ctx context.Context, b *Bucket, active, shadow bool) error {
	has := make([]float32, len(b.Params))
	for i, p := range b.Params {
		if active && p.HasGrad() {
			has[i] = 1
		}
	}
	if err := collective.AllReduce(ctx, g.Comm, collective.Max, has); err != nil {
		return err
	}
	var some []int
	for i := range has {
		if has[i] != 0 {
			some = append(some, i)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return g.strategy().Reduce(ctx, g, b, some, shadow)
}

// buffer returns scratch memory for n numbers, which the next call reuses.
func (g *Group) buffer(n int) []float32 {
	if cap(g.scratch) < n {
		g.scratch = make([]float32, n)
	}
	return g.scratch[:n]
}
