package dispatch

import (
	"runtime"
	"slices"
	"sync"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch/internal/inside"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/internal/residency"
	"github.com/heftai/heft/internal/topology"
	"github.com/heftai/heft/meta"
)

// GPUKernels are the kernels that a GPU computes with.
type GPUKernels uint8

// The kernels of GPUs.
const (
	GPUKernelsAuto  GPUKernels = iota // GPUKernelsFast on GPUs of an architecture on which they passed their tests
	GPUKernelsExact                   // with the order of sums of the CPU's kernels, and their bits
	GPUKernelsFast                    // for tensor cores, which round activations
)

// Precision selects the arithmetic of activations.
type Precision uint8

// The precisions.
const (
	// PrecisionAuto may round activations and the KV cache to the weights' dtype. Prompt tokens and
	// generated tokens have different orders of summation.
	PrecisionAuto Precision = iota
	// PrecisionHigh keeps activations, sums and the KV cache in float32, with one order of
	// summation for all tokens.
	PrecisionHigh
)

// Options say where weights live and how much memory a model may take. The zero value works.
type Options struct {
	// DeviceMap says where weights go; see [devicemap.ParsePolicy]. Zero is auto: weights that
	// tokens read most stay in memory, and others stream from the disk. [New], which is given a
	// map, ignores it.
	DeviceMap devicemap.Policy
	// MaxMemory limits the memory that Heft takes on each device. The default for the cpu is the
	// memory that the host has available.
	MaxMemory []devicemap.DeviceMemory
	// StrictMemory makes a limit below the minimum an error. Without it the model runs with the
	// minimum, and [Model.Plan] has a warning.
	StrictMemory bool
	// Threads is the number of threads that compute, at most GOMAXPROCS. 0 means one for each
	// physical core that the process may use, within the CPU quota of its control group.
	Threads int
	// Variant pins the kernels' instruction set ("go", "avx2", …); "" chooses the best.
	Variant string
	// Precision selects the arithmetic of activations and the default dtype of the KV cache.
	Precision Precision
	// Quantize converts the matrices of linear maps and experts to QuantQ8 or QuantQ4; see
	// [meta.Module.Quantized]. Each is converted before its first use, so that results do not
	// depend on the progress of loading. The disk tier streams converted weights from a file in
	// CacheDir. If they cannot be kept there, or CacheDir is empty, those that the host's memory has no room for are
	// converted again in each pass; with blocks on GPUs that is an error.
	Quantize meta.QuantFormat
	// Compress says when bfloat16 weights are coded in fewer bytes; answers are the same bit for bit.
	// It has no effect on other weights, nor with Quantize.
	Compress Compression
	// CacheDir is the folder for files of converted weights. It is created when needed. The first
	// model with converted weights on disk writes a file, and later ones use it. So does one whose
	// memory limit falls so that converted weights lose their memory. A file that is damaged or does
	// not match the checkpoint is written anew.
	CacheDir string
	// MeasurementsDir is the folder in which [Open], [OpenFS] and [LoadCheckpointAndDispatch] keep how
	// this processor reads weights fastest. The first of them on a machine measures that, once for all
	// models, in about 30 ms, and writes a file of 3 KiB; later ones read the file. No result depends on
	// it. They also keep hashes of weight files there, see [loader.Checkpoint.KeepHashes]. "" means heft
	// in the user's cache folder, and no file in programs that go test runs. "none" measures and writes
	// nothing, and keeps the default of the processor's vendor. [New] ignores this
	// option: call [Model.TuneReads].
	MeasurementsDir string
	// MaxBatchTokens is the most tokens of one batch. 0 means 512; [Plan] chooses more, up to 4096, if
	// weights stream from the disk.
	MaxBatchTokens int
	// StreamPrompts is the length in tokens from which prompts compute blocks of the cpu and disk tiers on a
	// GPU of the device map, to which their weights stream. Where a token is computed depends on its block,
	// its role and the length of its prompt alone. 0 streams nothing. With [StreamChosen], [Plan] chooses the
	// number from measured speeds, which it keeps in MeasurementsDir; it chooses 0 if streaming is not faster.
	StreamPrompts int
	// GPUKernels chooses the kernels of GPUs. With PrecisionHigh they are exact.
	GPUKernels GPUKernels
	// MaxSequences is the most sequences of one batch; 0 means 64.
	MaxSequences int
	// HiddenStates lets a pass return the hidden states of all its tokens, for which activations take more
	// memory. Without it they are those of at most 64 tokens, or of MaxSequences if that is more.
	HiddenStates bool
	// Context is the most tokens of a sequence; 0 means what the config allows.
	Context int
	// KVDType is the dtype of the KV cache: float32, bfloat16, or Int8 for blocks of q8_0, which
	// take half of bfloat16. NoDType means float32 with PrecisionHigh or float32 weights,
	// else bfloat16.
	KVDType meta.DType
	// KVTokens is the number of tokens that all sequences together can hold at least. With layers
	// that have a window, long sequences may hold more. 0 means as many as KVBytes holds.
	KVTokens int
	// KVBytes is the memory for the KV cache, if KVTokens does not need more. 0 means as much as
	// KVTokens needs, or one sequence of Context tokens.
	KVBytes int64
	// StagingBytes is the memory that the disk tier streams through: at least the largest streamed
	// unit with up to 64 MiB to read ahead, two bands of the matrices that stream in bands, and two
	// experts.
	StagingBytes int64
	// MaxModelLen is the longest request in tokens, which [Plan] sets: the context, or what the KV
	// cache holds when it has taken memory from weights until they are at their minimum.
	MaxModelLen int
	// Serving plans for a server: the limit then always includes the runtime's overhead and
	// RequestBytes.
	Serving bool
	// Lazy makes Warm and Promote do nothing, TuneReads not measure the disk, and Plan not measure a GPU: weights are read
	// only when a pass needs them.
	Lazy bool
	// RequestBytes is the memory for requests that are being read and for answers that wait to be
	// sent. [Plan] sets it; 0 means that requests are not counted.
	RequestBytes int64
	// Adapters are the adapters that sequences may use. They are counted as activations.
	Adapters []Adapter
	// AdapterMemory is the memory for adapters of [Model.AddAdapter], in bytes, of all models of the Ledger
	// together: give each model the same. It is counted as activations, in the plan of each model. 0 allows none.
	AdapterMemory int64
	// Routing is a recorded routing of the model's experts, from which [Plan] predicts the hits of
	// their cache. nil means the curve of usual routings: a cache with room for 4 % of all experts holds
	// 20 % of the requested ones, with room for 12 % 47 %, for a third 73 %. [Model.Warm] fills the cache
	// with the experts that it requested most.
	Routing *Routing
	// KVStore keeps pages of the KV cache beyond the life of the model; nil keeps none. Its buffers of two
	// pages are counted as activations. Hooks that change results must not be used with it.
	KVStore *KVStore
	// DeviceLost is called when a pass finds that a GPU cannot be used any more, before Forward returns
	// the error, once for a model. It must not use the model. nil does nothing.
	DeviceLost func(*DeviceError)
	// Ledger counts the memory that the model takes. nil means a new one.
	Ledger *Ledger

	lender *Model // of a draft by the model itself: has the weights of lent; see SelfDraft
	lent   map[*meta.Param]bool

	planned    *devicemap.Plan       // what Plan made these options for
	coded      bool                  // weights are coded, see Compress
	codedSizes map[*meta.Param]int64 // of KnownCoding; nil if no earlier start has recorded them
	canKeep    func() error          // of KnownCoding: why coded weights on the disk cannot be kept; nil if that is unknown
	unkept     map[*meta.Param]bool  // are stored, as only weights in memory are coded; nil if those on the disk are, too
	keptCodes  bool                  // of KnownCoding: an earlier start has coded the weights in a file
	codedSpeed func() float64        // of KnownCoding: how many times faster coded weights are in memory here, 0: not known; nil: not to be asked
	gain       float64               // what codedSpeed has returned to Plan
	// storedStreams lets CompressAuto code weights only if all are then in memory, as a self-draft uses stored ones.
	storedStreams bool
	// codedColumns is how long the rows of coded matrices are at least.
	codedColumns int
	borrows      bool // long passes borrow activations from experts; see keptTokens
	// wholePass runs all rows of a pass through a block together, so that it reads streamed matrices once.
	// Activations that short passes do not use are lent to these matrices.
	wholePass bool
	kvUsual   int64 // bytes of the KV cache that the plan expects sequences to use
	kvGrown   int64 // bytes to which the KV cache may grow; see kvRoom
	// columns streams matrices of GPTQ and AWQ in bands of outputs, which takes less memory and reads more slowly.
	columns bool
	// leastScratch makes operations take as little memory as they can, under a limit below the minimum for more.
	leastScratch bool
	scratches    *scratches // of this model; nil until the first is asked for

	inside inside.Options // of tests
}

func (o *Options) here() topology.Machine {
	if o.inside.Machine != nil {
		return *o.inside.Machine
	}
	return topology.Here()
}

// A Ledger counts the host memory of one or more models by purpose. Their weights share a region of
// memory, the workers that read them, and a limit. Its zero value is ready; it may be read from any goroutine.
type Ledger struct {
	host  hostmem.Ledger
	arena hostmem.Arena
	mover residency.Mover
	kept  residency.Policy
	begin sync.Once

	lenders  lenders
	adapters adapterPool
}

// SetLimit limits the memory of all models that l counts, in bytes, in addition to the limit that each model has.
// A model that needs memory takes it from models that are idle: their promoted, converted and kept weights
// are dropped, and read or converted again when they are used. Results stay bitwise the same. Other memory is
// counted but not released, so a limit that is too small is exceeded. Any goroutine may call it.
func (l *Ledger) SetLimit(bytes int64) { l.kept.SetLimit(bytes) }

// CountRequests counts n more bytes for requests, or fewer if n is negative. Streamed weights of all models
// return the memory that they were lent. Any goroutine may call it.
func (l *Ledger) CountRequests(n int64) {
	l.host.Add(hostmem.Requests, n)
	l.lenders.Lock()
	defer l.lenders.Unlock()
	for _, m := range l.lenders.models {
		m.followRequests()
	}
}

// lenders are the models that lend memory to their streamed weights.
type lenders struct {
	sync.Mutex
	models []*Model
}

func (l *lenders) add(m *Model) {
	l.Lock()
	l.models = append(l.models, m)
	l.Unlock()
}

func (l *lenders) remove(m *Model) {
	l.Lock()
	l.models = slices.DeleteFunc(l.models, func(other *Model) bool { return other == m })
	l.Unlock()
}

// Held returns the bytes held now, by purpose: "weights", "kv", "activations", "staging", "cache",
// "requests", "other".
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
	o.Ledger.begin.Do(func() {
		// The KV cache has addresses for more than the limit: it grows at the cost of weights.
		o.Ledger.arena.Ledger, o.Ledger.arena.Size = &o.Ledger.host, 2*DescribeHost().TotalBytes
	})
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

// cache is the configuration of a program's cache, with the pages asked for.
func (o *Options) cache(p *nn.Program) kvcache.Config {
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

// statesPerSequence is the number of states that there may be for each sequence of a batch: the one
// that a pass reads, the one that it writes, a copy, and a snapshot of an earlier prompt.
const statesPerSequence = 4

// remembers reports whether a program has keys and values, or states.
func remembers(p *nn.Program) bool { return len(p.KV()) > 0 || len(p.States()) > 0 }

// limits bound the passes. The logits of a whole batch would take rows × vocabulary; as
// many as a chunk of a scored prompt are enough.
func (o *Options) limits() nn.Limits {
	tile := tileRows
	switch {
	case o.wholePass:
		tile = o.MaxBatchTokens
	case o.inside.Tile > 0:
		tile = o.inside.Tile
	}
	l := nn.Limits{Rows: o.MaxBatchTokens, Outputs: max(o.MaxSequences, min(o.MaxBatchTokens, maxScored)), Tile: tile}
	if o.HiddenStates {
		l.States = o.MaxBatchTokens
	}
	return l
}

// tileRows is the number of rows that go through a block together. More are not faster: they fill
// the caches and occupy all threads.
const tileRows = 512

// maxScored is the most prompt tokens of one pass whose logits are wanted.
const maxScored = 64
