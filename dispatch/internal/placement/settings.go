package placement

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch/internal/gpus"
	"github.com/heftai/heft/dispatch/internal/testhooks"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/internal/residency/policy"
	"github.com/heftai/heft/internal/topology"
	"github.com/heftai/heft/meta"
)

// Settings are what a plan depends on besides the model. Before planning they hold what a caller
// asks for, afterwards also the sizes that the plan chose. dispatch.Options explains the fields of
// the first group, which have the same names there.
type Settings struct {
	DeviceMap       devicemap.Policy
	MaxMemory       []devicemap.DeviceMemory
	StrictMemory    bool
	Threads         int
	Variant         string
	Precision       Precision
	Quantize        meta.QuantFormat
	Compress        Compression
	CacheDir        string
	MeasurementsDir string
	MaxBatchTokens  int
	StreamPrompts   int
	GPUKernels      gpus.Kernels
	MaxSequences    int
	HiddenStates    bool
	Context         int
	KVDType         meta.DType
	KVTokens        int
	KVBytes         int64
	StagingBytes    int64
	MaxModelLen     int
	Serving         bool
	Lazy            bool
	RequestBytes    int64
	AdapterMemory   int64

	Adapters      []Adapter
	Routing       *policy.Trace   // a recorded routing, or nil
	ExpertHits    []policy.Point  // measured hit rates of the expert cache
	KVStored      bool            // pages of the KV cache are kept beyond the life of the model
	StoredStreams bool            // CompressAuto codes weights only if all of them are then in memory, because a self-draft uses stored ones
	Ledger        *hostmem.Ledger // counts the memory of measurements; may be nil

	Findings
	Choices

	Test      testhooks.Options // of tests
	scratches *scratches        // nil until first used
}

// Findings are what earlier starts have found out about a checkpoint; see [Settings.Find].
type Findings struct {
	CodedSizes map[*meta.Param]int64 // of matrices; nil if no start has recorded them
	canKeep    func() error          // why coded or converted weights on the disk cannot be kept; nil if that is unknown
	keptCodes  bool                  // an earlier start has coded the weights in a file
	CodedSpeed func() float64        // returns the speedup of coded weights in memory, 0 if unknown; nil: do not ask
}

// Choices are what a plan decides besides the sizes in Settings.
type Choices struct {
	Coded    bool                 // weights are coded, see Compress
	InMemory bool                 // code only weights in memory; those on the disk are read as stored
	asStored map[*meta.Param]bool // with InMemory: parameters that are read as stored, because the plan has them on the disk
	Gain     float64              // the result of CodedSpeed in the plan
	// codedColumns is the minimum row length of coded matrices.
	codedColumns int
	Borrows      bool // long passes borrow activations from experts; see borrow.go
	// wholePass runs all rows of a pass through a block together, so that the pass reads streamed
	// matrices once. Activations that short passes do not use are lent to these matrices.
	wholePass bool
	tight     bool  // no band is read ahead; see tighten
	KVUsual   int64 // bytes of the KV cache that the plan expects sequences to use
	KVGrown   int64 // bytes to which the KV cache may grow; see kvRoom
	// columns streams GPTQ and AWQ matrices in bands of outputs, which takes less memory and
	// reads more slowly.
	columns bool
	// leastScratch makes operations take the minimum of memory. It is set for limits below the
	// minimum of faster operations.
	leastScratch bool
	// conversion is the memory for the weights of one unit that are converted in each pass. Budgets
	// count it as activations, and the finished plan as weights.
	conversion int64
}

// An Adapter is an adapter in PEFT's files.
type Adapter struct{ Name, Dir string }

// Check returns an error that names the first field of o with an invalid value.
func (o *Settings) Check() error {
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"Threads", int64(o.Threads)}, {"MaxBatchTokens", int64(o.MaxBatchTokens)}, {"MaxSequences", int64(o.MaxSequences)},
		{"Context", int64(o.Context)}, {"KVTokens", int64(o.KVTokens)}, {"KVBytes", o.KVBytes}, {"StagingBytes", o.StagingBytes},
		{"MaxModelLen", int64(o.MaxModelLen)}, {"RequestBytes", o.RequestBytes}, {"AdapterMemory", o.AdapterMemory},
	} {
		if f.value < 0 {
			return fmt.Errorf("dispatch: Options.%s: got %d, want 0 or more", f.name, f.value)
		}
	}
	switch {
	case o.StreamPrompts < StreamChosen:
		return fmt.Errorf("dispatch: Options.StreamPrompts: got %d, want a number of tokens or StreamChosen", o.StreamPrompts)
	case o.Precision > PrecisionHigh:
		return fmt.Errorf("dispatch: Options.Precision: got %d, want PrecisionAuto or PrecisionHigh", o.Precision)
	case o.Compress > CompressExact:
		return fmt.Errorf("dispatch: Options.Compress: got %d, want CompressNone, CompressAuto or CompressExact", o.Compress)
	case o.GPUKernels > gpus.KernelsFast:
		return fmt.Errorf("dispatch: Options.GPUKernels: got %d, want GPUKernelsAuto, GPUKernelsExact or GPUKernelsFast", o.GPUKernels)
	case o.Quantize != meta.QuantNone && !o.Quantize.Row().Convert:
		return fmt.Errorf("dispatch: Options.Quantize: got %v (%d), want QuantNone, QuantQ8 or QuantQ4", o.Quantize, o.Quantize)
	case o.KVDType != meta.NoDType && !kvcache.Holds(o.KVDType):
		return fmt.Errorf("dispatch: Options.KVDType: got %v, want float32, bfloat16, float16 or int8", o.KVDType)
	}
	return nil
}

func (o *Settings) Machine() topology.Machine {
	if o.Test.Machine != nil {
		return *o.Test.Machine
	}
	return topology.Here()
}

func (o Settings) withDefaults(skeleton *meta.Model) Settings {
	if o.Threads <= 0 {
		o.Threads = DefaultThreads(o.Machine())
	}
	o.Threads = min(o.Threads, runtime.GOMAXPROCS(0))
	if o.MaxBatchTokens <= 0 {
		o.MaxBatchTokens = 512
	}
	if o.MaxSequences <= 0 {
		o.MaxSequences = 64
	}
	if spec, ok := skeleton.Root.Spec.(*meta.CausalLMSpec); ok && (o.Context <= 0) {
		o.Context = spec.Context
	}
	o.KVDType = KVDType(skeleton, o.KVDType, o.Precision)
	return o
}

// KVDType returns the dtype of the KV cache if kv is the requested one.
func KVDType(skeleton *meta.Model, kv meta.DType, precision Precision) meta.DType {
	switch {
	case kv != meta.NoDType:
		return kv
	case precision == PrecisionAuto && weightsAre16Bit(skeleton):
		return meta.BFloat16
	}
	return meta.Float32
}

func DefaultThreads(m topology.Machine) int { return min(m.Threads(), runtime.GOMAXPROCS(0)) }

// weightsAre16Bit reports whether the model's weights have 16 bits. It checks the first matrix
// only, because a model stores all matrices alike.
func weightsAre16Bit(skeleton *meta.Model) bool {
	for _, p := range skeleton.Root.AllParams() {
		if len(p.Shape) >= 2 {
			return p.DType.Bits() <= 16
		}
	}
	return false
}

// KVConfig returns the configuration of the KV cache, with the requested number of pages.
func (o *Settings) KVConfig(p *nn.Program) kvcache.Config {
	c := kvcache.Config{Layers: slices.Clone(p.KV()), DType: o.KVDType, PageTokens: kvcache.DefaultPageTokens,
		States: p.States(), StateSlots: statesPerSequence * o.MaxSequences}
	for i := range c.Layers {
		if c.Layers[i].Window >= o.Context { // it sees all
			c.Layers[i].Window = 0
		}
	}
	if o.KVTokens > 0 {
		c.Pages = c.SharedPages(o.KVTokens, o.MaxSequences, o.MaxBatchTokens)
	}
	if bytes := c.PageBytes(); bytes > 0 {
		c.Pages = max(c.Pages, int(o.KVBytes/bytes))
	}
	if c.Pages == 0 {
		c.Pages = max(1, c.SequencePages(o.Context, o.MaxBatchTokens))
	}
	return c
}

// statesPerSequence is the maximum number of states for each sequence of a batch: the one that a
// pass reads, the one that it writes, a copy, and a snapshot of an earlier prompt.
const statesPerSequence = 4

// HasKV reports whether a program has cached keys and values, or states.
func HasKV(p *nn.Program) bool { return len(p.KV()) > 0 || len(p.States()) > 0 }

// Limits returns the limits of a pass. Logits of a whole batch would take rows × vocabulary
// values. As many as a chunk of a scored prompt needs are enough.
func (o *Settings) Limits() nn.Limits {
	tile := tileRows
	switch {
	case o.wholePass:
		tile = o.MaxBatchTokens
	case o.Test.Tile > 0:
		tile = o.Test.Tile
	}
	l := nn.Limits{Rows: o.MaxBatchTokens, Outputs: max(o.MaxSequences, min(o.MaxBatchTokens, maxScored)), Tile: tile}
	if o.HiddenStates {
		l.States = o.MaxBatchTokens
	}
	return l
}

// tileRows is the number of rows that go through a block together. More rows are not faster:
// these fill the caches and occupy all threads.
const tileRows = 512

// maxScored is the maximum number of prompt tokens with logits in one pass.
const maxScored = 64

// GPUs returns the GPUs that the model may use.
func (o *Settings) GPUs() gpus.Tier {
	kernels := o.GPUKernels
	if o.Precision == PrecisionHigh {
		kernels = gpus.KernelsExact
	}
	return gpus.Of(o.Test.GPUs, kernels)
}

// Conversion returns the conversion of weights on GPUs. GPUs do not use coded weights: see
// checkQuantize.
func (o *Settings) Conversion(loaded map[*meta.Param]int64) gpus.Conversion {
	if o.Coded || o.Quantize == meta.QuantNone {
		return gpus.Conversion{}
	}
	return gpus.Conversion{Format: o.Quantize, Params: loaded}
}
