package dispatch

import (
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/meta"
)

const (
	// fewestSequences is the number of sequences that [ChooseSequences] begins with, and mostSequences
	// the largest that it chooses.
	fewestSequences, mostSequences = 16, 512
	// worthDoubling is the factor by which twice as many sequences must generate more tokens per second.
	// It is low enough that passes then compute longer than they read.
	worthDoubling = 1.2
)

// ChooseSequences returns how many sequences should generate together where only the tokens per second
// of all of them matter: Options.MaxSequences of [Planner.Plan] for a file of requests. If weights stream from
// the disk, a pass reads them once for all sequences, so that more sequences cost little until
// computing takes longer than reading. o are the options for Plan, and s is the machine's speed; with an
// unknown one it returns 16. It plans once for each doubling.
func (p *Planner) ChooseSequences(o Options, s MachineSpeed) int {
	best, rate := fewestSequences, 0.0
	for n := fewestSequences; n <= mostSequences; n *= 2 {
		o.MaxSequences = n
		plan, planned, err := p.Plan(o)
		if err != nil || n > fewestSequences && plan.BelowLeast {
			break
		}
		dtype := o.DeviceMap.DType
		if f := planned.loadedAs(); f != meta.QuantNone {
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

// togetherPerSecond estimates the tokens per second of n sequences together, 0 if a speed is unknown.
// Reading and computing are added: how far they overlap depends on the machine, and the estimate decides
// about doublings only.
func togetherPerSecond(skeleton *meta.Model, plan devicemap.Plan, dtype string, s MachineSpeed, n int) float64 {
	m, ok := newCostModel(skeleton, plan, dtype, s)
	if !ok {
		return 0
	}
	read := quotient(m.streamed+m.missed(n), s.DiskBytes)
	compute := m.compute(tokenPass{tokens: n, logits: n})
	if read == nil || compute == nil || *read+*compute == 0 {
		return 0
	}
	return float64(n) / (*read + *compute)
}
