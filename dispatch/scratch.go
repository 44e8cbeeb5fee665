package dispatch

import (
	"os"
	"sync"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/meta"
)

// The activations of a model are two memories: what its rules keep from one operation to the next, and
// what the operations of the cpu take while they run. Plans count both, see [cpu.ScratchOf].

// scratches remembers what operations take, because a plan asks for many sizes of passes.
type scratches struct {
	sync.Mutex
	known map[scratchKey]threadScratch
}

func newScratches() *scratches { return &scratches{known: map[scratchKey]threadScratch{}} }

// threadScratch is the scratch memory for so many threads.
type threadScratch struct {
	cpu.Scratch
	threads int
}

type scratchKey struct {
	program  *nn.Program
	limits   nn.Limits
	context  int
	threads  int
	kv       meta.DType
	loaded   meta.QuantFormat
	adapters bool
	least    bool
}

// activationBytes returns the memory of activations for passes within limits.
func (o *Options) activationBytes(skeleton *meta.Model, program *nn.Program, l nn.Limits) int64 {
	rules := int64(hostmem.Up(int(program.ScratchBytes(l)), os.Getpagesize()))
	s := o.scratch(skeleton, program, l)
	return rules + s.Bytes(s.threads)
}

// scratch returns what operations of passes within limits take at most. It is nothing if the processor lacks
// the variant of the kernels, of which [New] is the one to complain.
func (o *Options) scratch(skeleton *meta.Model, program *nn.Program, l nn.Limits) threadScratch {
	key := scratchKey{program: program, limits: l, context: o.Context, threads: o.Threads, kv: o.KVDType, loaded: o.loadedAs(),
		adapters: len(o.Adapters) > 0 || o.AdapterMemory > 0, least: o.leastScratch}
	if o.scratches == nil {
		o.scratches = newScratches()
	}
	o.scratches.Lock()
	defer o.scratches.Unlock()
	if s, ok := o.scratches.known[key]; ok {
		return s
	}
	work, threads := o.work(skeleton, program, l), o.withDefaults(skeleton).Threads
	s, err := cpu.ScratchOf(o.Variant, threads, &work, o.leastScratch)
	if err != nil {
		return threadScratch{}
	}
	o.scratches.known[key] = threadScratch{s, threads}
	return o.scratches.known[key]
}

// work is what passes within limits ask of a backend.
func (o *Options) work(skeleton *meta.Model, program *nn.Program, l nn.Limits) backend.Work {
	d, loaded, format := o.withDefaults(skeleton), o.loadedBytes(skeleton), o.loadedAs()
	return program.Work(l, d.Context, d.KVDType, func(p *meta.Param) meta.QuantFormat {
		if loaded[p] > 0 {
			return format
		}
		return meta.QuantNone
	}, len(o.Adapters) > 0 || o.AdapterMemory > 0)
}

// gpuOwnBytes is what the kernels of a GPU take at most beside tensors.
func (o *Options) gpuOwnBytes(skeleton *meta.Model, program *nn.Program) int64 {
	tier := o.gpuTier()
	if tier.own == nil {
		return 0
	}
	work := o.work(skeleton, program, o.limits())
	return tier.own(&work, o.Precision != PrecisionHigh && o.GPUKernels != GPUKernelsExact)
}
