package tune

import (
	"context"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/coded"
	"github.com/heftai/heft/internal/kernels/fetch"
)

// CodedColumns is the length of the rows that [Report.CodedGain] measures. Longer rows gain more.
const CodedColumns = columns

const (
	// gainRounds is how often coded and plain weights are multiplied alternately.
	gainRounds = 5
	// gainBytes is the memory that each thread reads at a time, and mostGainBytes the total over
	// all threads. With less memory, the first and last rows, which are not prefetched, slow
	// coded weights more than plain ones.
	gainBytes     = 8 << 20
	mostGainBytes = 16 << 20
)

// gains maps the role that reads coded weights to its speedup over plain weights.
type gains map[string]float64

// plainRoles maps roles of coded weights to those of plain weights.
var plainRoles = map[fetch.Role]fetch.Role{fetch.CodedFloats: fetch.Floats, fetch.CodedPairs: fetch.Pairs, fetch.CodedTokens: fetch.PairTokens}

// CodedGain returns the speedup of coded over plain bfloat16 weights in products with a token:
// the median of r's measurements, each kernel with its pattern of the plan. If several is set, it
// is the smaller of that gain and the gain for eight tokens at once. Activations are rounded as
// the variant's kernels round them by default. It returns 0 if the gain was not measured, or if
// several is set and the processor lacks AVX-512 BF16 and AMX.
func (r *Report) CodedGain(variant string, several bool) float64 {
	set, err := kernels.Select(variant)
	if err != nil {
		return 0
	}
	rounded := set.BF16 && !set.SlowPairs
	switch {
	case several && !rounded:
		return 0
	case several:
		return min(r.gain(fetch.CodedPairs), r.gain(fetch.CodedTokens))
	case rounded:
		return r.gain(fetch.CodedPairs)
	}
	return r.gain(fetch.CodedFloats)
}

// gain returns the gain of a role, or 0 if fewer than half of the measurements have it.
func (r *Report) gain(role fetch.Role) float64 {
	var all []float64
	for _, m := range r.measured {
		if g := m.Gains[role.String()]; g > 0 {
			all = append(all, g)
		}
	}
	if len(all) == 0 || 2*len(all) < len(r.measured) {
		return 0
	}
	return median(all)
}

// gainsOf measures gains with the patterns of plan. m reads as many bytes of coded weights as of
// plain ones. Roles that cannot be measured have no gain.
func gainsOf(ctx context.Context, plan *fetch.Plan, m meter) gains {
	out := gains{}
	fewer := float64(2*columns) / float64(coded.RowBytes(columns))
	for codes := range fetch.Roles {
		plain, ok := plainRoles[codes]
		if !ok {
			continue
		}
		var rounds []float64
		for range gainRounds {
			p, c := m(plain, plan[plain]), m(codes, plan[codes])
			if p <= 0 || c <= 0 || ctx.Err() != nil {
				break
			}
			rounds = append(rounds, p/c*fewer)
		}
		if len(rounds) == gainRounds {
			out[codes.String()] = median(rounds)
		}
	}
	return out
}

// measureGains calls gainsOf for the kernels of set in memory that it allocates. It returns nil
// if there is no memory.
func measureGains(ctx context.Context, set *kernels.Set, plan *fetch.Plan, threads int, ledger *hostmem.Ledger) gains {
	each := max(min(gainBytes, mostGainBytes/threads)&^(hostmem.HugePage-1), hostmem.HugePage)
	block, err := hostmem.Alloc(ledger, hostmem.Other, threads*each)
	if err != nil {
		return nil
	}
	defer func() { _ = block.Release() }() // allocated and released once
	w := newWorkersOf(set, block.Bytes(), threads, each, gainReaders)
	defer w.close()
	return gainsOf(ctx, plan, w.measure)
}
