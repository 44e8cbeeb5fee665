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

// GPUKernels selects the kernels that a GPU computes with.
type GPUKernels uint8

// The kinds of GPU kernels.
const (
	GPUKernelsAuto  GPUKernels = iota // GPUKernelsFast on GPU architectures on which they passed their tests
	GPUKernelsExact                   // same order of summation as the CPU's kernels, and the same bits
	GPUKernelsFast                    // kernels for tensor cores, which round activations
)

// Precision selects the arithmetic of activations.
type Precision uint8

// The precisions.
const (
	// PrecisionAuto may round activations and the KV cache to the weights' dtype. Prompt tokens
	// and generated tokens have different orders of summation.
	PrecisionAuto Precision = iota
	// PrecisionHigh keeps activations, sums and the KV cache in float32, with the same order of
	// summation for all tokens.
	PrecisionHigh
)

// Options say where weights live and how much memory a model may take. The zero value works.
type Options struct {
	// DeviceMap says where weights are placed; see [devicemap.ParsePolicy]. The zero value is
	// auto: the weights that tokens read most stay in memory, and others stream from the disk.
	// [New] ignores it because it is given a map.
	DeviceMap devicemap.Policy
	// MaxMemory limits the memory that Heft takes on each device. The default for the cpu is the
	// host's available memory.
	MaxMemory []devicemap.DeviceMemory
	// StrictMemory makes a limit below the minimum an error. Without it the model runs with the
	// minimum, and [Model.Plan] has a warning.
	StrictMemory bool
	// Threads is the number of threads that compute, at most GOMAXPROCS. 0 means one for each
	// physical core that the process may use, within the CPU quota of its control group.
	Threads int
	// Variant fixes the instruction set of the kernels ("go", "avx2", …); "" chooses the best.
	Variant string
	// Precision selects the arithmetic of activations and the default dtype of the KV cache.
	Precision Precision
	// Quantize converts the matrices of linear layers and experts to QuantQ8 or QuantQ4; see
	// [meta.Module.Quantized]. Each matrix is converted before its first use, so that results do
	// not depend on the progress of loading. The disk tier streams converted weights from a file
	// in CacheDir. If this file cannot be written or CacheDir is empty, the weights that do not
	// fit into the host's memory are converted again in each pass. With blocks on GPUs that is an
	// error.
	Quantize meta.QuantFormat
	// Compress selects lossless compression of bfloat16 weights: answers are the same bit for
	// bit. It has no effect on other weights, nor together with Quantize.
	Compress Compression
	// CacheDir is the folder for files of converted weights. It is created when needed. The first
	// model with converted weights on the disk writes a file, and later ones use it. A model also
	// writes the file if its memory limit falls so that converted weights are evicted. A file
	// that is damaged or does not match the checkpoint is written again.
	CacheDir string
	// MeasurementsDir is the folder in which [Open], [OpenFS] and [LoadCheckpointAndDispatch]
	// store how this processor reads weights fastest. The first call on a machine measures that
	// for all models, in about 30 ms, and writes a file of 3 KiB; later calls read the file.
	// Results do not depend on it. The folder also stores hashes of weight files, see
	// [loader.Checkpoint.KeepHashes]. "" means heft in the user's cache folder, and no file in
	// programs that go test runs. "none" measures and writes nothing, and uses the default for
	// the processor's vendor. [New] ignores this option: call [Model.TuneReads].
	MeasurementsDir string
	// MaxBatchTokens is the maximum number of tokens in a batch. 0 means 512; [Plan] chooses
	// more, up to 4096, if weights stream from the disk.
	MaxBatchTokens int
	// StreamPrompts is the minimum length, in tokens, of prompts that compute blocks of the cpu
	// and disk tiers on a GPU of the device map. The weights of these blocks stream to the GPU.
	// The device that computes a token depends only on its block, its role and the length of its
	// prompt. 0 disables streaming. With [StreamChosen], [Plan] chooses the length from measured
	// speeds, which it stores in MeasurementsDir; it chooses 0 if streaming is not faster.
	StreamPrompts int
	// GPUKernels selects the kernels of GPUs. With PrecisionHigh they are always exact.
	GPUKernels GPUKernels
	// MaxSequences is the maximum number of sequences in a batch; 0 means 64.
	MaxSequences int
	// HiddenStates lets a pass return the hidden states of all its tokens, which takes more
	// memory for activations. Without it a pass returns the hidden states of at most 64 tokens,
	// or of MaxSequences if that is more.
	HiddenStates bool
	// Context is the maximum number of tokens in a sequence; 0 means the config's maximum.
	Context int
	// KVDType is the dtype of the KV cache: float32, bfloat16, float16, or Int8 for blocks of
	// q8_0, which take about half of bfloat16. NoDType means float32 with PrecisionHigh or
	// float32 weights, otherwise bfloat16.
	KVDType meta.DType
	// KVTokens is the minimum number of tokens that all sequences together can hold. If layers
	// have an attention window, long sequences may hold more. 0 means the number that fits into
	// KVBytes.
	KVTokens int
	// KVBytes is the memory for the KV cache, unless KVTokens needs more. 0 means the memory that
	// KVTokens needs, or one sequence of Context tokens.
	KVBytes int64
	// StagingBytes is the memory through which the disk tier streams. The minimum is the largest
	// streamed unit with up to 64 MiB to read ahead, two bands of the matrices that stream in
	// bands, and two experts.
	StagingBytes int64
	// MaxModelLen is the maximum length of a request in tokens, which [Plan] sets. It is the
	// context, or less if the KV cache cannot hold as much even after it has taken all the memory
	// from weights that it can.
	MaxModelLen int
	// Serving plans for a server: the limit then always includes the runtime's overhead and
	// RequestBytes.
	Serving bool
	// Lazy makes Warm and Promote do nothing, TuneReads not measure the disk, and Plan not
	// measure a GPU. Weights are then read only when a pass needs them.
	Lazy bool
	// RequestBytes is the memory for requests that are being read and answers that wait to be
	// sent. [Plan] sets it; 0 means that requests are not counted.
	RequestBytes int64
	// Adapters are the adapters that sequences may use. Their memory is counted as activations.
	Adapters []Adapter
	// AdapterMemory is the memory in bytes for adapters of [Model.AddAdapter]. All models of a
	// Ledger share it: give each of them the same value. The plan of each model counts it as
	// activations. 0 allows no such adapters.
	AdapterMemory int64
	// Routing is a recorded routing of the model's experts. [Plan] predicts the hit rate of the
	// expert cache from it, and [Model.Warm] fills the cache with the experts that it requested
	// most. nil means the curve of usual routings: a cache with room for 4 % of all experts holds
	// 20 % of the requested ones, with room for 12 % 47 %, with room for a third 73 %.
	Routing *Routing
	// ExpertHits are hit rates of the expert cache that earlier runs of the model measured. [Plan]
	// corrects by them the rates that it predicts from Routing or the usual curve. nil means none.
	ExpertHits *ExpertHits
	// KVStore keeps pages of the KV cache beyond the life of the model; nil keeps none. Its
	// buffers of two pages are counted as activations. Hooks that change results must not be used
	// with it.
	KVStore *KVStore
	// DeviceLost is called once per model, when a pass finds that a GPU cannot be used any more
	// and before Forward returns the error. It must not use the model. It may be nil.
	DeviceLost func(*DeviceError)
	// Ledger counts the memory that the model takes. nil means a new ledger.
	Ledger *Ledger

	lender *Model // of a self-draft: the model whose weights it shares; see SelfDraft
	lent   map[*meta.Param]bool

	planned    *devicemap.Plan       // the plan that Plan made with these options
	coded      bool                  // weights are coded, see Compress
	codedSizes map[*meta.Param]int64 // of KnownCoding; nil if no earlier start has recorded them
	canKeep    func() error          // of KnownCoding: why coded weights on the disk cannot be kept; nil if that is unknown
	inMemory   bool                  // code only weights in memory; those on the disk are read as stored
	unkept     map[*meta.Param]bool  // with inMemory: parameters that are read as stored, because the plan has them on the disk
	keptCodes  bool                  // of KnownCoding: an earlier start has coded the weights in a file
	codedSpeed func() float64        // of KnownCoding: returns the speedup of coded weights in memory, 0 if unknown; nil: do not ask
	gain       float64               // the result of codedSpeed in Plan
	// storedStreams lets CompressAuto code weights only if all of them are then in memory,
	// because a self-draft uses stored ones.
	storedStreams bool
	// codedColumns is the minimum row length of coded matrices.
	codedColumns int
	borrows      bool // long passes borrow activations from experts; see keptTokens
	// wholePass runs all rows of a pass through a block together, so that the pass reads streamed
	// matrices once. Activations that short passes do not use are lent to these matrices.
	wholePass bool
	tight     bool  // no band is read ahead; see tighten
	kvUsual   int64 // bytes of the KV cache that the plan expects sequences to use
	kvGrown   int64 // bytes to which the KV cache may grow; see kvRoom
	// columns streams GPTQ and AWQ matrices in bands of outputs, which takes less memory and
	// reads more slowly.
	columns bool
	// leastScratch makes operations take the minimum of memory. It is set for limits below the
	// minimum of faster operations.
	leastScratch bool
	scratches    *scratches // of this model; nil until first used

	inside inside.Options // of tests
}

func (o *Options) here() topology.Machine {
	if o.inside.Machine != nil {
		return *o.inside.Machine
	}
	return topology.Here()
}

// A Ledger counts the host memory of one or more models by purpose. The weights of these models
// share a memory region, the workers that read them, and a limit. The zero value is ready to use.
// A Ledger is safe for concurrent use.
type Ledger struct {
	host  hostmem.Ledger
	arena hostmem.Arena
	mover residency.Mover
	kept  residency.Policy
	begin sync.Once

	lenders  lenders
	adapters adapterPool
}

// SetLimit limits the memory of all models that l counts, in bytes, in addition to the limit of
// each model. A model that needs memory takes it from idle models: their promoted, converted and
// cached weights are evicted, and read or converted again when they are used. Results stay
// bitwise the same. Other memory is counted but not released, so a limit that is too small is
// exceeded. SetLimit is safe for concurrent use.
func (l *Ledger) SetLimit(bytes int64) { l.kept.SetLimit(bytes) }

// CountRequests adds n bytes to the memory of requests; n may be negative. Streamed weights of
// all models return memory that they borrowed from requests. It is safe for concurrent use.
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
		// The KV cache reserves addresses for more than the limit, because it can grow by
		// evicting weights.
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

// cache returns the configuration of the KV cache, with the requested number of pages.
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

// statesPerSequence is the maximum number of states for each sequence of a batch: the one that a
// pass reads, the one that it writes, a copy, and a snapshot of an earlier prompt.
const statesPerSequence = 4

// remembers reports whether a program has cached keys and values, or states.
func remembers(p *nn.Program) bool { return len(p.KV()) > 0 || len(p.States()) > 0 }

// limits returns the limits of a pass. Logits of a whole batch would take rows × vocabulary
// values. As many as a chunk of a scored prompt needs are enough.
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

// tileRows is the number of rows that go through a block together. More rows are not faster:
// these fill the caches and occupy all threads.
const tileRows = 512

// maxScored is the maximum number of prompt tokens with logits in one pass.
const maxScored = 64
