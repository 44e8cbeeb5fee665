package placement

import (
	"os"
	"sync"

	"github.com/heftai/heft/dispatch/internal/gpus"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/meta"
)

// The activations of a model are two memories: values that the model's rules keep from one
// operation to the next, and scratch memory of the cpu's operations while they run. Plans count
// both, see [cpu.Sizer].

// sizers return the scratch memory of operations, by the variant of the kernels.
type sizers struct {
	sync.Mutex
	known map[string]*cpu.Sizer
}

func newSizers() *sizers { return &sizers{known: map[string]*cpu.Sizer{}} }

// of returns the sizer of a variant, or nil if the processor lacks the variant. The caller holds
// the lock.
func (s *sizers) of(variant string) *cpu.Sizer {
	if s.known[variant] == nil {
		z, err := cpu.NewSizer(variant)
		if err != nil {
			return nil
		}
		s.known[variant] = z
	}
	return s.known[variant]
}

// scratches caches the scratch memory of passes, because a plan asks for many sizes.
type scratches struct {
	*sizers
	passes  map[scratchKey]threadScratch
	demands map[demandKey]*nn.Demand
}

// newScratches returns scratches that share sizers with others.
func newScratches(s *sizers) *scratches {
	return &scratches{s, map[scratchKey]threadScratch{}, map[demandKey]*nn.Demand{}}
}

// threadScratch is the scratch memory for a number of threads.
type threadScratch struct {
	cpu.Scratch
	threads int
}

type scratchKey struct {
	demandKey
	variant string
	limits  nn.Limits
	context int
	threads int
	kv      meta.DType
	least   bool
}

type demandKey struct {
	program  *nn.Program
	loaded   meta.QuantFormat
	adapters bool
	inMemory bool // weights are used in both formats
}

// activationBytes returns the memory of activations for passes within the limits l.
func (o *Settings) activationBytes(skeleton *meta.Model, program *nn.Program, l nn.Limits) int64 {
	rules := int64(hostmem.Up(int(program.ScratchBytes(l)), os.Getpagesize()))
	s := o.Scratch(skeleton, program, l)
	return rules + s.Bytes(s.threads)
}

// Scratch returns the maximum scratch memory of operations in passes within the limits l. It is
// zero if the processor lacks the variant of the kernels; dispatch.New returns an error for that.
func (o *Settings) Scratch(skeleton *meta.Model, program *nn.Program, l nn.Limits) threadScratch {
	key := scratchKey{demandKey: o.demandKey(program), variant: o.Variant, limits: l, context: o.Context, threads: o.Threads, kv: o.KVDType, least: o.leastScratch}
	if o.scratches == nil {
		o.scratches = newScratches(newSizers())
	}
	o.scratches.Lock()
	defer o.scratches.Unlock()
	if s, ok := o.scratches.passes[key]; ok {
		return s
	}
	sizer := o.scratches.of(o.Variant)
	if sizer == nil {
		return threadScratch{}
	}
	demand := o.scratches.demands[key.demandKey]
	if demand == nil {
		demand = o.demand(skeleton, program)
		o.scratches.demands[key.demandKey] = demand
	}
	d := o.withDefaults(skeleton)
	work := demand.Within(l, d.Context, d.KVDType)
	s := threadScratch{sizer.Scratch(d.Threads, &work, key.least), d.Threads}
	o.scratches.passes[key] = s
	return s
}

func (o *Settings) demandKey(program *nn.Program) demandKey {
	return demandKey{program, o.LoadedAs(), len(o.Adapters) > 0 || o.AdapterMemory > 0, o.InMemory}
}

// demand returns what passes require of a backend.
func (o *Settings) demand(skeleton *meta.Model, program *nn.Program) *nn.Demand {
	loaded, key := o.LoadedBytes(skeleton), o.demandKey(program)
	stored := []meta.QuantFormat{meta.QuantNone}
	formats := []meta.QuantFormat{key.loaded}
	if o.InMemory {
		formats = append(formats, meta.QuantNone)
	}
	return program.Demand(func(p *meta.Param) []meta.QuantFormat {
		if loaded[p] > 0 {
			return formats
		}
		return stored
	}, key.adapters)
}

// GPUOwnBytes returns the maximum memory that the kernels of a GPU take in addition to tensors.
func (o *Settings) GPUOwnBytes(skeleton *meta.Model, program *nn.Program) int64 {
	tier := o.GPUs()
	if tier.Own == nil {
		return 0
	}
	d := o.withDefaults(skeleton)
	work := o.demand(skeleton, program).Within(o.Limits(), d.Context, d.KVDType)
	return tier.Own(&work, o.Precision != PrecisionHigh && o.GPUKernels != gpus.KernelsExact)
}
