package tune

import (
	"context"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/coded"
	"github.com/heftai/heft/internal/kernels/fetch"
)

// CodedColumns is the length of the rows for which [Report.CodedGain] holds. Longer rows gain more.
const CodedColumns = columns

const (
	// gainRounds are how often coded and plain weights are multiplied in turn.
	gainRounds = 5
	// gainBytes is the memory that each thread then reads at a time, and mostGainBytes that of all threads. In less memory
	// the first and last rows, which no prefetch serves, slow coded weights more than plain ones.
	gainBytes     = 8 << 20
	mostGainBytes = 16 << 20
)

// gains are how many times faster coded weights are than plain ones, by the name of the role that reads coded ones.
type gains map[string]float64

// plainRoles are the roles of plain weights by those of coded ones.
var plainRoles = map[fetch.Role]fetch.Role{fetch.CodedFloats: fetch.Floats, fetch.CodedPairs: fetch.Pairs, fetch.CodedTokens: fetch.PairTokens}

// CodedGain returns how many times faster the kernels of coded bfloat16 weights multiply a token than those of plain
// ones, each with its pattern of the plan, by the median of r's measurements. With several it is the lesser of that gain
// and the one of eight tokens at once. Activations are rounded as the variant's kernels round them by default. It returns 0
// if that was not measured, or for several tokens without AVX-512 BF16 or AMX.
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

// gain is the gain of a role; 0 if fewer than half of the measurements have it.
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

// gainsOf measures gains with the patterns of plan. m reads as many bytes of coded weights as of plain ones. What it cannot
// measure has no gain.
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

// measureGains is gainsOf the kernels of set in memory of its own, or nil if there is none.
func measureGains(ctx context.Context, set *kernels.Set, plan *fetch.Plan, threads int, ledger *hostmem.Ledger) gains {
	each := max(min(gainBytes, mostGainBytes/threads)&^(hostmem.HugePage-1), hostmem.HugePage)
	block, err := hostmem.Alloc(ledger, hostmem.Other, threads*each)
	if err != nil {
		return nil
	}
	defer func() { _ = block.Release() }() // held once
	w := newWorkersOf(set, block.Bytes(), threads, each, gainReaders)
	defer w.close()
	return gainsOf(ctx, plan, w.measure)
}
