package dispatch

import (
	"errors"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/meta"
)

// MemoryEstimate is the host memory for serving a model, in bytes.
type MemoryEstimate struct {
	KVPerToken  int64 // cached keys and values of a token in all layers
	KVPer1K     int64 // those of a sequence of 1000 tokens; layers with an attention window count for their window only
	KVTokens    int   // tokens that All and Least include: o.KVTokens, else the context, at most 4096
	Activations int64
	// All is the memory of the process with every weight resident. Least is the memory of a
	// process that streams as much as it can from the disk. Both include Runtime and, with
	// o.Serving, the memory for requests.
	All, Least int64
	Runtime    int64 // of the Go runtime, the program, the tokenizer and the model's description
}

// EstimateMemory estimates the host memory for serving skeleton with o. dtype is the type that
// weights are loaded as, or "" for the stored type; see [devicemap.Policy]. The estimate does not
// depend on the machine.
func EstimateMemory(skeleton *meta.Model, o Options, dtype string) (MemoryEstimate, error) {
	if skeleton == nil {
		return MemoryEstimate{}, errors.New("dispatch: estimate: got a nil skeleton")
	}
	if err := o.check(); err != nil {
		return MemoryEstimate{}, err
	}
	program, err := nn.Compile(skeleton.Root)
	if err != nil {
		return MemoryEstimate{}, err
	}
	asked := o.Context > 0
	o = o.withDefaults(skeleton)
	tokens := o.Context
	if !asked {
		tokens = min(tokens, leastContext)
	}
	cache := o.cache(program)
	o.KVTokens, o.KVBytes = 0, cache.SequenceBytes(tokens, o.MaxBatchTokens)
	const plenty = 1 << 60
	o.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: plenty}}
	o.DeviceMap = devicemap.Policy{Kind: devicemap.Manual, Pins: everywhere(devicemap.CPU), DType: dtype}
	planner := NewPlanner(skeleton)
	plan, _, err := planner.Plan(o)
	if err != nil {
		return MemoryEstimate{}, err
	}
	host := plan.Device(devicemap.CPU)
	all := host.Used() - host.RequestBytes
	if o.Serving {
		host.RequestBytes = requestBytes(all)
	}
	o.DeviceMap = devicemap.Policy{DType: dtype}
	streamed, _, err := planner.Plan(o)
	if err != nil {
		return MemoryEstimate{}, err
	}
	return MemoryEstimate{
		KVPerToken:  cache.BytesPerToken(),
		KVPer1K:     cache.TokensBytes(1000),
		KVTokens:    tokens,
		Activations: host.ActivationBytes,
		All:         all + host.RequestBytes,
		Least:       streamed.Least,
		Runtime:     host.RuntimeBytes,
	}, nil
}
