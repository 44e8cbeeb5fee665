package dispatch

import (
	"cmp"
	"slices"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch/internal/placement"
	"github.com/heftai/heft/meta"
)

// A Help is a change of [Options] that is predicted to make a model generate faster. Exactly one
// of the fields before TokensPerSecond is set.
type Help struct {
	MoreBytes       int64            `json:"more_cpu_bytes,omitempty"` // added to the limit of the cpu
	Quantize        meta.QuantFormat `json:"-"`
	Format          string           `json:"quantize,omitempty"`    // the name of Quantize
	Compress        string           `json:"compress,omitempty"`    // the name of CompressExact, which does not change answers
	KeptBytes       int64            `json:"cache_bytes,omitempty"` // bytes that Compress writes to the cache folder
	TokensPerSecond float64          `json:"tokens_per_second"`
}

// A CodedPlan is the plan with [CompressExact] for a model whose weights stream from the disk.
type CodedPlan struct {
	Plan      devicemap.Plan
	Options   Options // the options that Plan returned with it
	KeptBytes int64   // size of the coded weights, which the first start writes to the cache folder
}

// CodedInstead returns the plan with coded weights, if with it a token reads at least a twentieth
// less from the disk. o are the options that were given to [Planner.Plan], and plan is its
// result.
func (p *Planner) CodedInstead(o Options, plan devicemap.Plan) (*CodedPlan, bool) {
	if !placement.Streams(&plan) || plan.DiskBytesPerToken == 0 || o.Quantize != meta.QuantNone || o.Compress == CompressExact || o.cannotKeepCoded() {
		return nil, false
	}
	o.Compress = CompressExact
	coded, planned, err := p.Plan(o)
	if err != nil || !planned.placed.Settings.Coded || leastGain*float64(coded.DiskBytesPerToken) > float64(plan.DiskBytesPerToken) {
		return nil, false
	}
	return &CodedPlan{Plan: coded, Options: planned, KeptBytes: planned.placed.CodedSize(p.skeleton)}, true
}

// cannotKeepCoded reports whether coded weights cannot be stored in CacheDir.
func (o *Options) cannotKeepCoded() bool {
	s := o.settings()
	return s.KeepsCoded() != nil
}

// leastGain is the minimum speedup of a change that is worth reporting.
const leastGain = 1.05

// WhatHelps returns the changes that would make a model faster whose weights stream from the
// disk, the most effective first. It considers coded weights, converted weights, and more memory:
// a quarter to a half of the limit, or less if the model needs less. o are the options that were
// given to [Planner.Plan] and plan is its result; dtype and s are as for [Predict]. It plans once
// for each change.
func (p *Planner) WhatHelps(o Options, plan devicemap.Plan, dtype string, s MachineSpeed) []Help {
	now := Predict(p.skeleton, plan, dtype, s).TokensPerSecond
	limit := plan.Device(devicemap.CPU).LimitBytes
	if !placement.Streams(&plan) || now == nil || limit == 0 {
		return nil
	}
	var list []Help
	add := func(changed devicemap.Plan, dtype string, h Help) {
		if then := Predict(p.skeleton, changed, dtype, s).TokensPerSecond; then != nil && *then >= leastGain**now {
			h.TokensPerSecond = *then
			list = append(list, h)
		}
	}
	try := func(o Options, dtype string, h Help) {
		if changed, _, err := p.Plan(o); err == nil { // weights that cannot be converted are an error
			add(changed, dtype, h)
		}
	}
	more := step(limit)
	if fit, ok := p.FitsWith(o, plan); ok {
		more = min(more, fit.LimitBytes-limit)
	}
	larger := o
	larger.MaxMemory = withHost(o.MaxMemory, limit+more)
	try(larger, dtype, Help{MoreBytes: more})
	if c, ok := p.CodedInstead(o, plan); ok {
		add(c.Plan, c.Options.LoadedAs().String(), Help{Compress: CompressExact.String(), KeptBytes: c.KeptBytes})
	}
	if o.Quantize == meta.QuantNone {
		for _, f := range meta.Conversions() {
			smaller := o
			smaller.Quantize = f
			try(smaller, f.String(), Help{Quantize: f, Format: f.String()})
		}
	}
	slices.SortStableFunc(list, func(a, b Help) int { return cmp.Compare(b.TokensPerSecond, a.TokensPerSecond) })
	return list
}

// step returns a power of two of MiB between a quarter and a half of limit.
func step(limit int64) int64 {
	n := int64(1 << 20)
	for n*4 < limit {
		n *= 2
	}
	return n
}

// withHost returns limits with the cpu's replaced.
func withHost(limits []devicemap.DeviceMemory, bytes int64) []devicemap.DeviceMemory {
	limits = slices.DeleteFunc(slices.Clone(limits), func(m devicemap.DeviceMemory) bool { return m.Device == devicemap.CPU })
	return append(limits, devicemap.DeviceMemory{Device: devicemap.CPU, Bytes: float64(bytes)})
}

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
		next := 0.0 // unknown
		if m, ok := costs(p.skeleton, plan, dtype, meta.NoDType, s); ok {
			next = m.TogetherPerSecond(n)
		}
		if n > fewestSequences && next <= worthDoubling*rate {
			break
		}
		best, rate = n, next
	}
	return best
}
