package dispatch

import (
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/meta"
)

const (
	// fewestSequences is the number of sequences with which [ChooseSequences] begins.
	// mostSequences is the largest number that it chooses.
	fewestSequences, mostSequences = 16, 512
	// worthDoubling is the minimum speedup, in tokens per second, of doubling the number of
	// sequences. It is low enough that passes then compute longer than they read.
	worthDoubling = 1.2
)

// ChooseSequences returns how many sequences should generate together where only the tokens per
// second of all of them matter, such as for a file of requests. Use it as Options.MaxSequences of
// [Planner.Plan]. If weights stream from the disk, a pass reads them once for all sequences. More
// sequences then cost little until computing takes longer than reading. o are the options for
// Plan, and s is the machine's speed; if s is unknown, ChooseSequences returns 16. It plans once
// for each doubling.
func (p *Planner) ChooseSequences(o Options, s MachineSpeed) int {
	best, rate := fewestSequences, 0.0
	for n := fewestSequences; n <= mostSequences; n *= 2 {
		o.MaxSequences = n
		plan, planned, err := p.Plan(o)
		if err != nil || n > fewestSequences && plan.BelowLeast {
			break
		}
		dtype := o.DeviceMap.DType
		if f := planned.LoadedAs(); f != meta.QuantNone {
			dtype = f.String()
		}
		next := togetherPerSecond(p.skeleton, plan, dtype, s, n)
		if n > fewestSequences && next <= worthDoubling*rate {
			break
		}
		best, rate = n, next
	}
	return best
}

// togetherPerSecond estimates the total tokens per second of n sequences, or returns 0 if a speed
// is unknown. It adds reading and computing: their overlap depends on the machine, and the
// estimate only decides about doublings.
func togetherPerSecond(skeleton *meta.Model, plan devicemap.Plan, dtype string, s MachineSpeed, n int) float64 {
	m, ok := newCostModel(skeleton, plan, dtype, meta.NoDType, s)
	if !ok {
		return 0
	}
	read := quotient(m.streamed+m.missed(n), s.DiskBytes)
	compute := m.compute(tokenPass{tokens: n, logits: n, apart: true})
	if read == nil || compute == nil || *read+*compute == 0 {
		return 0
	}
	return float64(n) / (*read + *compute)
}
