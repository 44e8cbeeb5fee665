package placement

import (
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch/internal/gpus"
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

// Streams reports whether passes read weights from the disk when no memory is lent to streamed
// weights.
func Streams(plan *devicemap.Plan) bool { return plan.Streamed() >= leastStreamed }

// streamsDense reports whether every token reads weights other than routed experts from the disk.
func streamsDense(plan *devicemap.Plan) bool {
	return plan.Streamed()-expertReads(plan) >= leastStreamed
}

// expertReads returns the bytes of routed experts that a token reads from the disk.
func expertReads(plan *devicemap.Plan) int64 {
	return plan.ExpertBytesPerToken - int64(plan.ExpertHitRate*float64(plan.ExpertBytesPerToken))
}

// chooseBatch chooses how weights stream, to minimise the disk reads of a usual request. If o does
// not set the batch size, chooseBatch chooses it. A larger batch takes more memory for activations,
// so fewer weights stay resident while prompts are computed. If every token reads matrices from
// the disk, and that reads less, all rows of a pass go through a block together. base is the plan
// for o with the default batch size.
func (p *placer) chooseBatch(base Placement, o Settings) Placement {
	if base.Plan.BelowLeast {
		return base
	}
	if !Streams(&base.Plan) {
		if base.Plan.StreamPrompts > 0 && o.MaxBatchTokens <= 0 {
			return p.longerPasses(base, o)
		}
		return base
	}
	best := base
	o.leastScratch = base.Settings.leastScratch // larger batches have no more room for it
	switch {
	case o.MaxBatchTokens <= 0:
		if best = p.borrow(base, o); !best.Settings.Borrows {
			best = p.largerBatch(base, o)
		}
	case streamsDense(&base.Plan):
		o.wholePass = true
		if next, err := p.place(o); err == nil && !next.Plan.BelowLeast && next.reads() < base.reads() {
			best = next
		}
	}
	best.Plan.Least = base.Plan.Least // which is the least of all sizes
	return best
}

// largerBatch returns the plan whose batch size minimises the disk reads of a usual request.
func (p *placer) largerBatch(base Placement, o Settings) Placement {
	best, least := base, base.reads()
	token := base.Plan.DiskBytesPerToken
	o.wholePass = streamsDense(&base.Plan)
	for _, tokens := range append([]int{base.Settings.MaxBatchTokens}, batchSizes[:]...) {
		if tokens < base.Settings.MaxBatchTokens || tokens > base.Settings.Context {
			continue
		}
		o.MaxBatchTokens = tokens
		next, err := p.place(o)
		if err != nil || next.Plan.BelowLeast {
			break
		}
		if streamsDense(&next.Plan) && !streamsDense(&base.Plan) {
			break // what every token reads stays in memory
		}
		if n := next.reads(); n < least && next.Plan.DiskBytesPerToken <= token+token/slowerShare {
			best, least = next, n
		}
	}
	return best
}

// longerPasses returns the plan with the largest batch, if all weights are in memory and prompts
// stream some of them to a GPU. Each pass of a prompt copies these weights, so fewer passes are
// faster. The activations of longer passes take little of the GPU memory for weights.
func (p *placer) longerPasses(base Placement, o Settings) Placement {
	best, host := base, onHost(&base.Plan)
	for _, tokens := range batchSizes {
		if tokens > base.Settings.Context {
			break
		}
		o.MaxBatchTokens = tokens
		next, err := p.place(o)
		if err != nil || next.Plan.BelowLeast || next.Plan.StreamPrompts == 0 || Streams(&next.Plan) || onHost(&next.Plan) > host+host/slowerShare {
			break
		}
		best = next
	}
	return best
}

// onHost returns the bytes of the weights that no GPU holds.
func onHost(plan *devicemap.Plan) (n int64) {
	for i := range plan.Devices {
		if d := &plan.Devices[i]; !gpus.Is(d.Device) {
			n += d.WeightsBytes
		}
	}
	return n
}

// reads returns the bytes that a usual request reads from the disk tier. Experts are read once
// for each pass of its prompt, matrices once for each tile of a pass.
func (d *Placement) reads() int64 {
	token := d.Plan.DiskBytesPerToken
	dense := max(0, token-expertReads(&d.Plan))
	experts := token - dense
	if d.Plan.ExpertBytesPerToken > 0 { // a prompt takes nearly all experts
		experts = max(experts, d.Plan.Device(devicemap.Disk).WeightsBytes-d.Plan.ExpertCacheBytes-dense)
	}
	prompt, tokens := min(usualPrompt, d.Settings.Context), d.Settings.MaxBatchTokens
	parts := func(size int) int64 { return int64((prompt + size - 1) / size) }
	return parts(tokens)*experts + parts(min(tokens, d.Settings.Limits().Tile))*dense + usualAnswer*token
}

// aheadShare bounds the cost of reading bands ahead: its window makes a token read at most 1/aheadShare more.
const aheadShare = 16

// tighten returns a plan that reads no bands ahead if a token then reads much less. It matters to small models, and to those
// that almost fit: the window for reading ahead is up to 32 MiB.
func (p *placer) tighten(d Placement, o Settings) Placement {
	if reads := d.Plan.DiskBytesPerToken; d.Plan.BelowLeast || !Streams(&d.Plan) || reads > aheadShare*devicemap.BandAhead {
		return d
	}
	o.tight = true
	o.MaxBatchTokens, o.wholePass, o.Borrows, o.leastScratch = d.Settings.MaxBatchTokens, d.Settings.wholePass, d.Settings.Borrows, d.Settings.leastScratch
	next, err := p.place(o)
	if err != nil || next.Plan.BelowLeast || d.Plan.DiskBytesPerToken-next.Plan.DiskBytesPerToken < d.Plan.DiskBytesPerToken/aheadShare {
		return d
	}
	next.Plan.Least = d.Plan.Least
	return next
}
