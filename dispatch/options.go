package dispatch

import (
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch/internal/gpus"
	"github.com/heftai/heft/dispatch/internal/placement"
	"github.com/heftai/heft/dispatch/internal/testhooks"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// GPUKernels selects the kernels that a GPU computes with.
type GPUKernels = gpus.Kernels

// The kinds of GPU kernels.
const (
	GPUKernelsAuto  = gpus.KernelsAuto  // GPUKernelsFast on GPU architectures on which they passed their tests
	GPUKernelsExact = gpus.KernelsExact // same order of summation as the CPU's kernels, and the same bits
	GPUKernelsFast  = gpus.KernelsFast  // kernels for tensor cores, which round activations
)

// Precision selects the arithmetic of activations.
type Precision = placement.Precision

// The precisions.
const (
	// PrecisionAuto may round activations and the KV cache to the weights' dtype. Prompt tokens
	// and generated tokens have different orders of summation.
	PrecisionAuto = placement.PrecisionAuto
	// PrecisionHigh keeps activations, sums and the KV cache in float32, with the same order of
	// summation for all tokens.
	PrecisionHigh = placement.PrecisionHigh
)

// Compression says when bfloat16 weights are coded. Coding is lossless compression to about three
// quarters of the bytes: coded weights give the same answers bit for bit.
//
// [CompressAuto] codes
//   - all weights, if they fit in memory only when coded,
//   - all weights, if they fit anyway and coded weights are measured to generate tokens faster,
//   - all weights, if some stay on the disk and an earlier start with [CompressExact] has
//     written the coded weights to a file,
//   - otherwise only the weights in memory, if a token then reads a tenth less from the disk.
type Compression = placement.Compression

// The kinds of compression.
const (
	CompressNone  = placement.CompressNone  // use weights as stored
	CompressAuto  = placement.CompressAuto  // code weights if that pays
	CompressExact = placement.CompressExact // code all weights that get a tenth smaller or more; those on the disk in a file of CacheDir
)

// ParseCompression returns the compression called auto, exact or none.
func ParseCompression(name string) (Compression, bool) { return placement.ParseCompression(name) }

// StreamChosen is the value of Options.StreamPrompts with which [Plan] chooses the length from
// the measured speeds of the host and the GPU.
const StreamChosen = placement.StreamChosen

// RuntimeBytes is the memory that a plan reserves for the Go runtime and the program, which no
// ledger counts. The row [devicemap.DevicePlan.RuntimeBytes] also includes the memory of the
// tokenizer and the module tree.
const RuntimeBytes = placement.RuntimeBytes

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

	found  placement.Findings   // of earlier starts; see KnownCoding
	placed *placement.Placement // the latest plan that was made with these options, or nil
	self   selfDraftOptions     // of a model with a self-draft, or of the draft
	test   testhooks.Options    // of tests
}

// settings returns what planning reads of o. Choices of an earlier plan stay: who plans again with
// its options gets the same formats.
func (o *Options) settings() placement.Settings {
	s := placement.Settings{
		DeviceMap: o.DeviceMap, MaxMemory: o.MaxMemory, StrictMemory: o.StrictMemory, Threads: o.Threads, Variant: o.Variant,
		Precision: o.Precision, Quantize: o.Quantize, Compress: o.Compress, CacheDir: o.CacheDir, MeasurementsDir: o.MeasurementsDir,
		MaxBatchTokens: o.MaxBatchTokens, StreamPrompts: o.StreamPrompts, GPUKernels: o.GPUKernels, MaxSequences: o.MaxSequences,
		HiddenStates: o.HiddenStates, Context: o.Context, KVDType: o.KVDType, KVTokens: o.KVTokens, KVBytes: o.KVBytes,
		StagingBytes: o.StagingBytes, MaxModelLen: o.MaxModelLen, Serving: o.Serving, Lazy: o.Lazy, RequestBytes: o.RequestBytes,
		AdapterMemory: o.AdapterMemory, KVStored: o.KVStore != nil, StoredStreams: o.self.storedStreams,
		Findings: o.found, Test: o.test,
	}
	for _, a := range o.Adapters {
		s.Adapters = append(s.Adapters, placement.Adapter(a))
	}
	if o.Routing != nil {
		s.Routing = o.Routing.trace
	}
	if o.ExpertHits != nil {
		s.ExpertHits = o.ExpertHits.points
	}
	if o.Ledger != nil {
		s.Ledger = &o.Ledger.host
	}
	if o.placed != nil {
		s.Choices = o.placed.Settings.Choices
	}
	s.Borrows = s.Borrows || o.test.Borrows
	return s
}

// with returns o with the sizes of settings.
func (o Options) with(s *placement.Settings) Options {
	o.DeviceMap, o.MaxMemory, o.Threads, o.Compress = s.DeviceMap, s.MaxMemory, s.Threads, s.Compress
	o.MaxBatchTokens, o.MaxSequences, o.StreamPrompts = s.MaxBatchTokens, s.MaxSequences, s.StreamPrompts
	o.Context, o.MaxModelLen, o.KVDType, o.KVTokens, o.KVBytes = s.Context, s.MaxModelLen, s.KVDType, s.KVTokens, s.KVBytes
	o.StagingBytes, o.RequestBytes = s.StagingBytes, s.RequestBytes
	return o
}

// planned returns o with the sizes of a plan, and the plan itself for [New].
func (o Options) planned(d *placement.Placement) Options {
	o = o.with(&d.Settings)
	o.placed = d
	return o
}

// KnownCoding returns o with what it finds in CacheDir: from earlier starts the matrices that coding
// does not make smaller, and whether there is room for a file of coded or converted weights. Plans
// count weights on the disk as stored if that file cannot be written. KnownCoding reads no weight. Without a checkpoint it
// returns o unchanged.
func (o Options) KnownCoding(skeleton *meta.Model, checkpoint *loader.Checkpoint) Options {
	s := o.settings()
	s = s.Find(skeleton, checkpoint)
	o.found = s.Findings
	return o
}

// CodedGain returns the measured speedup of coded weights over plain ones on this machine. It is
// known only for the options that [Plan] returned, and only if the plan depended on it; otherwise
// it is 0.
func (o *Options) CodedGain() float64 {
	if o.placed == nil {
		return 0
	}
	return o.placed.Settings.Gain
}

// LoadedAs returns the format that weights are converted to when they are loaded. That is the
// format of Quantize, QuantCoded if [Plan] chose coded weights, or QuantNone.
func (o *Options) LoadedAs() meta.QuantFormat {
	s := o.settings()
	return s.LoadedAs()
}

// check returns an error that names the first field of o with an invalid value.
func (o *Options) check() error {
	s := o.settings()
	return s.Check()
}
