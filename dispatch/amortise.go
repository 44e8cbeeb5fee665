package dispatch

import (
	"github.com/heftai/heft/devicemap"
)

// A pass reads every weight of the disk tier once, however many tokens it computes. Batch sizes
// are chosen for requests of this shape, in tokens.
const (
	usualPrompt = 4096
	usualAnswer = 128
)

// leastStreamed is the minimum number of disk bytes per token from which weights count as
// streamed. Rows of embedding tables stay below it.
const leastStreamed = 1 << 20

// slowerShare bounds the cost of a larger batch: a generated token reads at most 1/slowerShare
// more from the disk.
const slowerShare = 32

// batchSizes are the tokens of a batch that a plan chooses from, besides the default.
var batchSizes = [...]int{1024, 2048, usualPrompt}

// streams reports whether passes read weights from the disk when no memory is lent to streamed
// weights.
func streams(plan *devicemap.Plan) bool { return plan.Streamed() >= leastStreamed }

// Streams reports whether passes of a plan read weights from the disk. It ignores memory that the
// KV cache and requests may lend to weights. A pass that streams takes about as long for many
// tokens as for one.
func Streams(plan devicemap.Plan) bool { return streams(&plan) }

// streamsDense reports whether every token reads weights other than routed experts from the disk.
func streamsDense(plan *devicemap.Plan) bool {
	return plan.Streamed()-expertReads(plan) >= leastStreamed
}

// expertReads returns the bytes of routed experts that a token reads from the disk.
func expertReads(plan *devicemap.Plan) int64 {
	return plan.ExpertBytesPerToken - int64(plan.ExpertHitRate*float64(plan.ExpertBytesPerToken))
}

// amortise chooses how weights stream, to minimise the disk reads of a usual request. If o does
// not set the batch size, amortise chooses it. A larger batch takes more memory for activations,
// so fewer weights stay resident while prompts are computed. If every token reads matrices from
// the disk, and that reads less, all rows of a pass go through a block together. base is the plan
// for o with the default batch size.
func (p *placement) amortise(base placed, o Options) placed {
	if base.plan.BelowLeast {
		return base
	}
	if !streams(&base.plan) {
		if base.plan.StreamPrompts > 0 && o.MaxBatchTokens <= 0 {
			return p.longerPasses(base, o)
		}
		return base
	}
	best := base
	o.leastScratch = base.options.leastScratch // larger batches have no more room for it
	switch {
	case o.MaxBatchTokens <= 0:
		if best = p.borrow(base, o); !best.options.borrows {
			best = p.largerBatch(base, o)
		}
	case streamsDense(&base.plan):
		o.wholePass = true
		if next, err := p.place(o); err == nil && !next.plan.BelowLeast && next.reads() < base.reads() {
			best = next
		}
	}
	best.plan.Least = base.plan.Least // which is the least of all sizes
	return best
}

// largerBatch returns the plan whose batch size minimises the disk reads of a usual request.
func (p *placement) largerBatch(base placed, o Options) placed {
	best, least := base, base.reads()
	token := base.plan.DiskBytesPerToken
	o.wholePass = streamsDense(&base.plan)
	for _, tokens := range append([]int{base.options.MaxBatchTokens}, batchSizes[:]...) {
		if tokens < base.options.MaxBatchTokens || tokens > base.options.Context {
			continue
		}
		o.MaxBatchTokens = tokens
		next, err := p.place(o)
		if err != nil || next.plan.BelowLeast {
			break
		}
		if streamsDense(&next.plan) && !streamsDense(&base.plan) {
			break // what every token reads stays in memory
		}
		if n := next.reads(); n < least && next.plan.DiskBytesPerToken <= token+token/slowerShare {
			best, least = next, n
		}
	}
	return best
}

// longerPasses returns the plan with the largest batch, if all weights are in memory and prompts
// stream some of them to a GPU. Each pass of a prompt copies these weights, so fewer passes are
// faster. The activations of longer passes take little of the GPU memory for weights.
func (p *placement) longerPasses(base placed, o Options) placed {
	best, host := base, onHost(&base.plan)
	for _, tokens := range batchSizes {
		if tokens > base.options.Context {
			break
		}
		o.MaxBatchTokens = tokens
		next, err := p.place(o)
		if err != nil || next.plan.BelowLeast || next.plan.StreamPrompts == 0 || streams(&next.plan) || onHost(&next.plan) > host+host/slowerShare {
			break
		}
		best = next
	}
	return best
}

// onHost returns the bytes of the weights that no GPU holds.
func onHost(plan *devicemap.Plan) (n int64) {
	for i := range plan.Devices {
		if d := &plan.Devices[i]; !isGPU(d.Device) {
			n += d.WeightsBytes
		}
	}
	return n
}

// reads returns the bytes that a usual request reads from the disk tier. Experts are read once
// for each pass of its prompt, matrices once for each tile of a pass.
func (d *placed) reads() int64 {
	token := d.plan.DiskBytesPerToken
	dense := max(0, token-expertReads(&d.plan))
	experts := token - dense
	if d.plan.ExpertBytesPerToken > 0 { // a prompt takes nearly all experts
		experts = max(experts, d.plan.Device(devicemap.Disk).WeightsBytes-d.plan.ExpertCacheBytes-dense)
	}
	prompt, tokens := min(usualPrompt, d.options.Context), d.options.MaxBatchTokens
	parts := func(size int) int64 { return int64((prompt + size - 1) / size) }
	return parts(tokens)*experts + parts(min(tokens, d.options.limits().Tile))*dense + usualAnswer*token
}

// aheadShare bounds the cost of reading bands ahead: its window makes a token read at most 1/aheadShare more.
const aheadShare = 16

// tighten returns a plan that reads no bands ahead if a token then reads much less. It matters to small models, and to those
// that almost fit: the window for reading ahead is up to 32 MiB.
func (p *placement) tighten(d placed, o Options) placed {
	if reads := d.plan.DiskBytesPerToken; d.plan.BelowLeast || !streams(&d.plan) || reads > aheadShare*devicemap.BandAhead {
		return d
	}
	o.tight = true
	o.MaxBatchTokens, o.wholePass, o.borrows, o.leastScratch = d.options.MaxBatchTokens, d.options.wholePass, d.options.borrows, d.options.leastScratch
	next, err := p.place(o)
	if err != nil || next.plan.BelowLeast || d.plan.DiskBytesPerToken-next.plan.DiskBytesPerToken < d.plan.DiskBytesPerToken/aheadShare {
		return d
	}
	next.plan.Least = d.plan.Least
	return next
}
