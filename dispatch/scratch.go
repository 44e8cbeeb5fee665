package dispatch

import (
	"os"
	"sync"

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
func (o *Options) activationBytes(skeleton *meta.Model, program *nn.Program, l nn.Limits) int64 {
	rules := int64(hostmem.Up(int(program.ScratchBytes(l)), os.Getpagesize()))
	s := o.scratch(skeleton, program, l)
	return rules + s.Bytes(s.threads)
}

// scratch returns the maximum scratch memory of operations in passes within the limits l. It is
// zero if the processor lacks the variant of the kernels; [New] returns an error for that.
func (o *Options) scratch(skeleton *meta.Model, program *nn.Program, l nn.Limits) threadScratch {
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

func (o *Options) demandKey(program *nn.Program) demandKey {
	return demandKey{program, o.loadedAs(), len(o.Adapters) > 0 || o.AdapterMemory > 0, o.inMemory}
}

// demand returns what passes require of a backend.
func (o *Options) demand(skeleton *meta.Model, program *nn.Program) *nn.Demand {
	loaded, key := o.loadedBytes(skeleton), o.demandKey(program)
	stored := []meta.QuantFormat{meta.QuantNone}
	formats := []meta.QuantFormat{key.loaded}
	if o.inMemory {
		formats = append(formats, meta.QuantNone)
	}
	return program.Demand(func(p *meta.Param) []meta.QuantFormat {
		if loaded[p] > 0 {
			return formats
		}
		return stored
	}, key.adapters)
}

// gpuOwnBytes returns the maximum memory that the kernels of a GPU take in addition to tensors.
func (o *Options) gpuOwnBytes(skeleton *meta.Model, program *nn.Program) int64 {
	tier := o.gpuTier()
	if tier.own == nil {
		return 0
	}
	d := o.withDefaults(skeleton)
	work := o.demand(skeleton, program).Within(o.limits(), d.Context, d.KVDType)
	return tier.own(&work, o.Precision != PrecisionHigh && o.GPUKernels != GPUKernelsExact)
}
