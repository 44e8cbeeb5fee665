package placement

import (
	"github.com/heftai/heft/devicemap"
)

// A MemoryEstimate is the host memory for serving a model, in bytes. dispatch.MemoryEstimate
// explains its fields.
type MemoryEstimate struct {
	KVPerToken, KVPer1K int64
	KVTokens            int
	Activations         int64
	All, Least, Runtime int64
}

// Estimate estimates the host memory for serving the model with o. dtype is the type that weights
// are loaded as, or "" for the stored type; see [devicemap.Policy]. The estimate does not depend on
// the machine.
func (p *Planner) Estimate(o Settings, dtype string) (MemoryEstimate, error) {
	if err := o.Check(); err != nil {
		return MemoryEstimate{}, err
	}
	program, err := p.compiled()
	if err != nil {
		return MemoryEstimate{}, err
	}
	asked := o.Context > 0
	o = o.withDefaults(p.skeleton)
	tokens := o.Context
	if !asked {
		tokens = min(tokens, LeastContext)
	}
	cache := o.KVConfig(program)
	o.KVTokens, o.KVBytes = 0, cache.SequenceBytes(tokens, o.MaxBatchTokens)
	const plenty = 1 << 60
	o.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: plenty}}
	o.DeviceMap = devicemap.Policy{Kind: devicemap.Manual, Pins: devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU}), DType: dtype}
	resident, err := p.Plan(o)
	if err != nil {
		return MemoryEstimate{}, err
	}
	host := resident.Plan.Device(devicemap.CPU)
	all := host.Used() - host.RequestBytes
	if o.Serving {
		host.RequestBytes = RequestBytes(all)
	}
	o.DeviceMap = devicemap.Policy{DType: dtype}
	streamed, err := p.Plan(o)
	if err != nil {
		return MemoryEstimate{}, err
	}
	return MemoryEstimate{
		KVPerToken:  cache.BytesPerToken(),
		KVPer1K:     cache.TokensBytes(1000),
		KVTokens:    tokens,
		Activations: host.ActivationBytes,
		All:         all + host.RequestBytes,
		Least:       streamed.Plan.Least,
		Runtime:     host.RuntimeBytes,
	}, nil
}
