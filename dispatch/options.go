package dispatch

import (
	"github.com/heftai/heft/devicemap"
	"runtime"
	"slices"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/internal/topology"
	"github.com/heftai/heft/meta"
)

// Precision says how exact activations are.
type Precision uint8

// The precisions.
const (
	// PrecisionAuto may round activations and keys and values to the weights' dtype. It
	// has one order of summation for the tokens of a prompt and one for generated tokens.
	PrecisionAuto Precision = iota
	// PrecisionHigh keeps activations, sums, keys and values in float32, summed in one
	// order for all tokens.
	PrecisionHigh
)

// Options size a model. The zero value works.
type Options struct {
	// DeviceMap says where weights go; see [devicemap.ParsePolicy]. Zero is auto: what is read
	// most per token stays in memory, the rest streams from the disk. [New], which is given a map,
	// ignores it.
	DeviceMap devicemap.Policy
	// MaxMemory limits what Heft keeps on each device. Without a limit for the cpu it is the memory
	// that the host has available.
	MaxMemory []devicemap.Memory
	// StrictMemory makes a limit below the minimum an error. Without it the model runs with the
	// minimum, and [Model.Plan] has a warning.
	StrictMemory bool
	// Threads that compute, no more than Go runs at once (GOMAXPROCS), as more would only wait
	// for each other. 0 means one for each physical core that the process may use, no more
	// than the quota of its control group uses up.
	Threads int
	// Variant pins the kernels' instruction set ("go", "avx2", …); "" chooses the best.
	Variant   string
	Precision Precision
	// Quantize is QuantQ8 or QuantQ4 to hold the matrices of linear maps and of experts in
	// that format; see [meta.Module.Quantized]. Each is converted before its first use, so
	// that no result depends on how far loading is. The disk tier streams converted weights
	// from a file in CacheDir; without that none may be there.
	Quantize meta.QuantFormat
	// CacheDir is a folder, made where it is needed, for files of converted weights. The first
	// model of a checkpoint with some of them on the disk tier writes one, and the next uses
	// it, on both tiers. What does not fit the checkpoint any more, or is damaged, is made
	// again.
	CacheDir string
	// MaxBatchTokens is the most tokens of one batch; 0 means 512.
	MaxBatchTokens int
	// MaxSequences is the most sequences of one batch; 0 means 64.
	MaxSequences int
	// Context is the most tokens of a sequence; 0 means what the config allows.
	Context int
	// KVDType is the dtype of keys and values: float32, bfloat16, or Int8 for blocks of q8_0,
	// half of what bfloat16 takes. NoDType means float32 with PrecisionHigh or float32 weights,
	// else bfloat16.
	KVDType meta.DType
	// KVTokens is the number of tokens that all sequences together can hold, however they
	// are divided. Layers with a window keep no more of a sequence than they see, so that
	// long sequences may hold more. 0 means what KVBytes says.
	KVTokens int
	// KVBytes is the memory for keys and values, where KVTokens does not take more; 0 means
	// what KVTokens takes, or else one sequence of Context tokens.
	KVBytes int64
	// StagingBytes is the memory for the rings of the disk tier. Less than twice the
	// largest streamed unit is raised to that.
	StagingBytes int64
	// Serving plans for a server: the limit then includes the runtime's overhead, however small
	// it is, and RequestBytes.
	Serving bool
	// RequestBytes is the memory for requests that are being read and for answers that wait to be
	// sent. [Plan] sets it; 0 means that requests are not counted.
	RequestBytes int64
	// Adapters are the adapters that sequences may use. They are counted as activations.
	Adapters []Adapter
	// Ledger counts the memory that the model takes. nil means a new one.
	Ledger *Ledger

	planned *devicemap.Plan   // what Plan made these options for
	machine *topology.Machine // in tests, another than this one
}

func (o *Options) here() topology.Machine {
	if o.machine != nil {
		return *o.machine
	}
	return topology.Here()
}

// A Ledger counts the host memory of one or more models by purpose. Its zero value is
// ready; it may be read from any goroutine.
type Ledger struct{ host hostmem.Ledger }

// Held is what is held now, in bytes, by purpose: "weights", "kv", "activations",
// "staging", "cache", "requests", "other".
func (l *Ledger) Held() map[string]int64 {
	out := map[string]int64{}
	for _, p := range hostmem.Purposes() {
		out[p.String()] = l.host.Held(p)
	}
	return out
}

func (o *Options) ledger() *hostmem.Ledger {
	if o.Ledger == nil {
		o.Ledger = new(Ledger)
	}
	return &o.Ledger.host
}

func (o Options) withDefaults(skeleton *meta.Model) Options {
	if o.Threads <= 0 {
		o.Threads = defaultThreads(o.here())
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
	if o.KVDType == meta.NoDType {
		o.KVDType = meta.Float32
		if o.Precision == PrecisionAuto && weightsAre16Bit(skeleton) {
			o.KVDType = meta.BFloat16
		}
	}
	return o
}

func defaultThreads(m topology.Machine) int { return min(m.Threads(), runtime.GOMAXPROCS(0)) }

// weightsAre16Bit looks at the first matrix, as all of a model are alike.
func weightsAre16Bit(skeleton *meta.Model) bool {
	for _, p := range skeleton.Root.AllParams() {
		if len(p.Shape) >= 2 {
			return p.DType.Bits() <= 16
		}
	}
	return false
}

// cache is the configuration of the cache of so many layers, with the pages asked for.
func (o *Options) cache(layers []kvcache.LayerShape) kvcache.Config {
	c := kvcache.Config{Layers: slices.Clone(layers), DType: o.KVDType, PageTokens: kvcache.DefaultPageTokens}
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

// limits bound the passes. The logits of a whole batch would take rows × vocabulary; as
// many as a chunk of a scored prompt are enough.
func (o *Options) limits() nn.Limits {
	return nn.Limits{Rows: o.MaxBatchTokens, Outputs: max(o.MaxSequences, min(o.MaxBatchTokens, maxScored))}
}

// maxScored is the most prompt tokens of one pass whose logits are wanted.
const maxScored = 64
