package dispatch

import (
	"cmp"
	"slices"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/meta"
)

// A Help is a change of [Options] with which a model is predicted to generate faster. One of the
// fields before TokensPerSecond is set.
type Help struct {
	MoreBytes       int64            `json:"more_cpu_bytes,omitempty"` // added to the limit of the cpu
	Quantize        meta.QuantFormat `json:"-"`
	Format          string           `json:"quantize,omitempty"` // the name of Quantize
	TokensPerSecond float64          `json:"tokens_per_second"`
}

// leastGain is the factor from which a change is worth mentioning.
const leastGain = 1.05

// WhatHelps returns the changes that would make a model faster whose weights stream from the disk,
// the most effective one first: a quarter to a half more memory, or all that it needs if that is less,
// and converted weights. o are the options that were given to [Plan], plan its result, and dtype and s
// are as for [Predict]. It plans once for each change.
func WhatHelps(skeleton *meta.Model, o Options, plan devicemap.Plan, dtype string, s MachineSpeed) []Help {
	now := Predict(skeleton, plan, dtype, s).TokensPerSecond
	limit := plan.Device(devicemap.CPU).LimitBytes
	if !streams(&plan) || now == nil || limit == 0 {
		return nil
	}
	var list []Help
	try := func(o Options, dtype string, h Help) {
		changed, _, err := Plan(skeleton, o)
		if err != nil {
			return // such as weights that cannot be converted
		}
		if then := Predict(skeleton, changed, dtype, s).TokensPerSecond; then != nil && *then >= leastGain**now {
			h.TokensPerSecond = *then
			list = append(list, h)
		}
	}
	more := step(limit)
	if fit, ok := FitsWith(skeleton, o, plan); ok {
		more = min(more, fit.LimitBytes-limit)
	}
	larger := o
	larger.MaxMemory = withHost(o.MaxMemory, limit+more)
	try(larger, dtype, Help{MoreBytes: more})
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

// step is a power of two of MiB, a quarter to a half of limit.
func step(limit int64) int64 {
	n := int64(1 << 20)
	for n*4 < limit {
		n *= 2
	}
	return n
}

// withHost replaces the limit of the cpu.
func withHost(limits []devicemap.DeviceMemory, bytes int64) []devicemap.DeviceMemory {
	limits = slices.DeleteFunc(slices.Clone(limits), func(m devicemap.DeviceMemory) bool { return m.Device == devicemap.CPU })
	return append(limits, devicemap.DeviceMemory{Device: devicemap.CPU, Bytes: float64(bytes)})
}
