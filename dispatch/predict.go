package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch/internal/placement"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/probe"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// MachineSpeed holds the rates of a machine with its compute threads. 0 means unknown.
type MachineSpeed struct {
	MemoryBytes float64 `json:"memory_bytes_per_second"` // read from memory
	DiskBytes   float64 `json:"disk_bytes_per_second"`   // read from the checkpoint's files, bypassing the page cache
	// Operations32 and Operations16 are multiply-adds of prompt tokens with weights of 32 and of
	// 16 bits. Operations8 is the rate with weights converted to blocks of 8 or 4 bits; if it is
	// 0, these have the rate of 32 bits.
	Operations32 float64 `json:"operations_32_bit_per_second"`
	Operations16 float64 `json:"operations_16_bit_per_second"`
	Operations8  float64 `json:"operations_8_bit_per_second"`
	// Products32, Products16 and Products8 are the same rates by the number of tokens, in
	// ascending order, with weights that are read from memory. If they are empty, products of any
	// number of tokens have the rates above.
	Products32 []ProductSpeed `json:"products_32_bit"`
	Products16 []ProductSpeed `json:"products_16_bit"`
	Products8  []ProductSpeed `json:"products_8_bit"`
	// Floats is the number of float32 values per second that operations other than products read
	// and write. OperationSeconds is the fixed time of an operation, whatever its size.
	Floats           float64 `json:"floats_per_second"`
	OperationSeconds float64 `json:"operation_seconds"`
}

// Probe measures the machine with o's threads and kernels. It takes 0.8 seconds and at most
// memory bytes. With less than 32 MiB, the speed of memory and the rates of products by tokens
// stay unknown. It measures the disk by reading files of the checkpoint, which may be nil.
// o.Ledger counts the memory.
func Probe(ctx context.Context, o Options, checkpoint *loader.Checkpoint, memory int64) (MachineSpeed, error) {
	var ledger *hostmem.Ledger
	if o.Ledger != nil {
		ledger = &o.Ledger.host
	}
	p := probe.Options{Variant: o.Variant, Files: filesOf(checkpoint), MemoryBytes: max(memory, 1), Ledger: ledger}
	if o.Threads > 0 {
		p.Threads = []int{o.Threads}
	}
	r, err := probe.Run(ctx, p)
	if err != nil {
		return MachineSpeed{}, err
	}
	rounded := o.Precision == PrecisionAuto
	eight := meta.Conversions()[0].String()
	s := MachineSpeed{Operations32: r.ComputeFor("float32", false), Operations16: r.ComputeFor("bfloat16", rounded), Operations8: r.ComputeFor(eight, rounded)}
	s.Products32, s.Products16 = productSpeeds(r.ByTokensFor("float32", false)), productSpeeds(r.ByTokensFor("bfloat16", rounded))
	s.Products8, s.Floats, s.OperationSeconds = productSpeeds(r.ByTokensFor(eight, rounded)), r.FloatsPerSecond, r.OperationSeconds
	if n := len(r.Memory); n > 0 {
		s.MemoryBytes = r.Memory[n-1].BytesPerSecond
	}
	if r.Disk != nil {
		s.DiskBytes = r.Disk.BytesPerSecond
	}
	return s, nil
}

// filesOf returns the paths of a checkpoint's files. Files in memory have none.
func filesOf(checkpoint *loader.Checkpoint) (files []string) {
	if checkpoint == nil {
		return nil
	}
	for _, f := range checkpoint.Files() {
		if f.Path != "" {
			files = append(files, f.Path)
		}
	}
	return files
}

// Probe measures the machine with the threads and kernels of m and the disk of its checkpoint. A
// pass that runs meanwhile is slower and lowers the result. Probe is safe for concurrent use.
func (m *Model) Probe(ctx context.Context, memory int64) (MachineSpeed, error) {
	o := m.options
	o.Threads = m.settings.Threads
	return Probe(ctx, o, m.checkpoint, memory)
}

// ProbeDisk returns the read rate of the disk that holds folder, in bytes per second. It returns
// the rate that an earlier measurement stored in folder. Otherwise it measures for 320 ms with a
// temporary file of 64 MiB and stores the result. It creates the folder.
func ProbeDisk(ctx context.Context, folder string) (float64, error) {
	if kept := probe.KeptDisk(folder, folder); kept != nil {
		return kept.BytesPerSecond, nil
	}
	r, err := probe.Folder(ctx, folder, probe.Options{})
	if err != nil {
		return 0, fmt.Errorf("dispatch: %w", err)
	}
	return r.BytesPerSecond, probe.KeepDisk(folder, r)
}

// predictedPrompt is the prompt length for FirstTokenSeconds, in tokens.
const predictedPrompt = 8

// Predict estimates how fast skeleton runs on a machine of speed s with the given plan. dtype is
// that of the plan's policy: "" for the stored dtype, or the format that weights are converted
// to. If a device has no measured speed, only DiskBytesPerToken is set.
//
// Loading is bounded by the disk. The first token reads the weights that the prompt uses from the
// disk, then computes. For a later token, computing, which is bounded by memory, overlaps with
// reading streamed weights from the disk: the slower of the two counts. Reads of missing experts
// are added. Experts multiply few tokens each, so they have the rate of few tokens if s has rates
// by tokens. TokensPerSecond is that of a short context; [PredictRun] counts longer ones.
func Predict(skeleton *meta.Model, plan devicemap.Plan, dtype string, s MachineSpeed) ModelSpeed {
	disk := float64(plan.DiskBytesPerToken)
	out := ModelSpeed{DiskBytesPerToken: &disk}
	m, ok := newCostModel(skeleton, plan, dtype, meta.NoDType, s)
	if !ok {
		return out
	}
	out.LoadSeconds = quotient(float64(plan.Device(devicemap.CPU).WeightsBytes), s.DiskBytes)
	if seconds := m.step(1, predictedPrompt); seconds != nil && *seconds > 0 {
		out.TokensPerSecond = known(1 / *seconds)
	}
	if read, compute := quotient(m.touched(predictedPrompt), s.DiskBytes), m.compute(tokenPass{tokens: predictedPrompt, logits: 1}); read != nil && compute != nil {
		out.FirstTokenSeconds = known(*read + *compute)
	}
	return out
}

// A Run describes requests whose speed [PredictRun] predicts.
type Run struct {
	PromptTokens int        // of each sequence
	DecodeTokens int        // that each sequence generates
	BatchTokens  int        // maximum number of tokens in a pass
	Sequences    int        // that generate together
	KVDType      meta.DType // of the KV cache; NoDType means that of [Options] without KVDType
}

// PredictRun is like the function [PredictRun] for the model, its plan and its KV cache.
func (m *Model) PredictRun(s MachineSpeed, r Run) ModelSpeed {
	r.KVDType = m.settings.KVDType
	dtype := ""
	if f := m.LoadedAs(); f != meta.QuantNone {
		dtype = f.String()
	}
	return PredictRun(m.skeleton, m.PlanWith(r.Sequences, r.PromptTokens+r.DecodeTokens), dtype, s, r)
}

// PredictRun estimates how fast requests run on a model whose cpu tier is in memory. It sets the
// time from the start of a prompt to its first token, the tokens per second of all sequences
// together in the middle of their answers, and the bytes that one pass for all of them reads from
// the disk. LoadSeconds is unknown. Sparse attention counts as if it read the whole KV cache.
func PredictRun(skeleton *meta.Model, plan devicemap.Plan, dtype string, s MachineSpeed, r Run) ModelSpeed {
	m, ok := newCostModel(skeleton, plan, dtype, r.KVDType, s)
	if !ok {
		return ModelSpeed{}
	}
	out := ModelSpeed{DiskBytesPerToken: known(m.streamed + m.missed(r.Sequences))}
	if seconds := m.step(r.Sequences, r.PromptTokens+r.DecodeTokens/2); seconds != nil && *seconds > 0 {
		out.TokensPerSecond = known(float64(r.Sequences) / *seconds)
	}
	total := 0.0
	for at := 0; at < r.PromptTokens && r.BatchTokens > 0; at += r.BatchTokens {
		n := min(r.PromptTokens-at, r.BatchTokens)
		ahead, wait := slower(quotient(m.streamed, s.DiskBytes), m.compute(tokenPass{tokens: n, logits: 1, seen: at})), quotient(m.missed(n), s.DiskBytes)
		if ahead == nil || wait == nil {
			return out
		}
		total += *ahead + *wait
	}
	out.FirstTokenSeconds = &total
	return out
}

// costModel is the cost of passes of a model with a plan, in bytes.
type costModel struct {
	skeleton *meta.Model
	plan     devicemap.Plan
	speed    MachineSpeed
	dtype    string
	weights  float64 // that a pass of one token reads, from any tier
	streamed float64 // the part that every pass reads from the disk
	elements float64 // number of weights
	rate     float64 // operations per second
	load     workload
	products []ProductSpeed // rates with weights in the format that they have in memory
	kind     float64        // bytes per weight of the measured products
}

// newCostModel returns false if a device has no measured speed.
func newCostModel(skeleton *meta.Model, plan devicemap.Plan, dtype string, kv meta.DType, s MachineSpeed) (*costModel, bool) {
	for _, d := range plan.Devices {
		if d.Device != devicemap.CPU && d.Device != devicemap.Disk && d.WeightsBytes > 0 {
			return nil, false
		}
	}
	step, err := BytesPerToken(skeleton, dtype)
	if err != nil {
		return nil, false
	}
	m := &costModel{skeleton: skeleton, plan: plan, speed: s, dtype: dtype, weights: float64(step), rate: s.Operations32}
	m.elements, m.load = m.weights/bytesOfWeight(skeleton, dtype), workloadOf(skeleton, placement.KVDType(skeleton, kv, PrecisionAuto))
	m.products, m.kind = s.Products32, 4
	switch f, converted := quantized(dtype); {
	case converted && !f.Row().Exact:
		m.rate = cmp.Or(s.Operations8, s.Operations32)
		if eight := meta.Conversions()[0]; len(s.Products8) > 0 {
			m.products, m.kind = s.Products8, float64(eight.BlockBytes())/float64(eight.BlockColumns())
		}
	case bytesOfWeight(skeleton, dtype) <= 2:
		m.rate, m.products, m.kind = s.Operations16, s.Products16, 2
	}
	m.streamed = float64(plan.DiskBytesPerToken) - m.missed(1)
	return m, true
}

// missed returns the size of the experts that a pass of n tokens reads from the disk. The cache
// holds the experts that are requested most, so more tokens request more of the others. It
// assumes that each token requests each of the others with the same probability.
func (m *costModel) missed(n int) float64 {
	one := (1 - m.plan.ExpertHitRate) * float64(m.plan.ExpertBytesPerToken)
	others := max(one, float64(m.plan.UncachedExpertBytes()))
	if n <= 1 || one == 0 {
		return one
	}
	return others * (1 - math.Pow(1-one/others, float64(n)))
}

// touched returns the size of the weights that a pass of n tokens reads, from any tier.
func (m *costModel) touched(n int) float64 {
	return m.weights + experts(m.skeleton, n)*scale(m.skeleton, m.dtype)
}

// compute returns the time to compute a pass with weights in memory.
func (m *costModel) compute(p tokenPass) *float64 {
	if seconds, ok := m.byTokens(p); ok {
		return known(seconds)
	}
	return slower(quotient(m.touched(p.tokens), m.speed.MemoryBytes), quotient(2*m.elements*float64(p.tokens), m.rate))
}

// byTokens is compute with rates by the number of tokens. ok is false if these are unknown.
func (m *costModel) byTokens(p tokenPass) (seconds float64, ok bool) {
	if m.speed.MemoryBytes <= 0 {
		return 0, false
	}
	bytes := bytesOfWeight(m.skeleton, m.dtype)
	rates := productRates{speeds: m.products, many: m.rate, excess: (bytes - m.kind) / m.speed.MemoryBytes}
	if bytes < m.kind {
		rates.least = bytes / m.speed.MemoryBytes
	}
	return m.load.seconds(&m.speed, &rates, p)
}

// decode returns the time to compute a pass in which n sequences generate a token each behind seen
// tokens, with weights in memory.
func (m *costModel) decode(n, seen int) *float64 {
	p := tokenPass{tokens: n, logits: n, seen: seen, apart: true}
	if seconds, ok := m.byTokens(p); ok {
		return known(seconds)
	}
	seconds := quotient(m.touched(n)-m.missed(n), m.speed.MemoryBytes)
	if seconds != nil && m.speed.MemoryBytes > 0 {
		*seconds += m.load.attentionSeconds(&m.speed, p)
	}
	return seconds
}

// step returns the time of a pass in which n sequences generate a token each behind seen tokens.
// Streamed weights are read ahead while others compute. Missing experts are known only after their
// router has run.
func (m *costModel) step(n, seen int) *float64 {
	ahead := slower(m.decode(n, seen), quotient(m.streamed, m.speed.DiskBytes))
	wait := quotient(m.missed(n), m.speed.DiskBytes)
	if ahead == nil || wait == nil {
		return nil
	}
	return known(*ahead + *wait)
}

// quotient returns amount ÷ rate. It returns 0 if amount is 0, and nil if the rate is unknown.
func quotient(amount, rate float64) *float64 {
	switch {
	case amount == 0:
		return new(float64)
	case rate <= 0:
		return nil
	}
	return known(amount / rate)
}

// slower returns the longer of two times that overlap, or nil if one is unknown.
func slower(a, b *float64) *float64 {
	if a == nil || b == nil {
		return nil
	}
	return known(max(*a, *b))
}

// BytesPerToken returns the bytes of weights that a pass of one token reads, from any tier. It
// excludes the rows of embedding tables that are not looked up and the experts that are not
// selected. dtype is as in [devicemap.Policy], or the format that weights are converted to.
func BytesPerToken(skeleton *meta.Model, dtype string) (int64, error) {
	policy := devicemap.Policy{Kind: devicemap.Manual, Pins: everywhere(devicemap.Disk), DType: dtype}
	if f, ok := quantized(dtype); ok {
		policy.DType, policy.Loaded = "", skeleton.Root.LoadedBytes(f, false)
	}
	plan, err := devicemap.Solve(skeleton, []devicemap.Budget{{Device: devicemap.CPU}}, policy)
	return plan.DiskBytesPerToken, err
}

// experts returns how many more bytes of experts a prompt of n tokens reads than one token, as
// stored. It assumes that routers choose uniformly.
func experts(skeleton *meta.Model, n int) float64 {
	more := 0.0
	for bytes, one := range mixtures(skeleton) {
		more += bytes * (1 - math.Pow(1-one, float64(n)) - one)
	}
	return more
}

// mixtures iterates over the stacks of experts: their sizes, and the share that one token
// selects.
func mixtures(skeleton *meta.Model) iter.Seq2[float64, float64] {
	return func(yield func(float64, float64) bool) {
		for _, m := range skeleton.Root.Walk() {
			spec, ok := m.Spec.(*meta.MoESpec)
			if !ok || spec.Count == 0 {
				continue
			}
			for _, stack := range m.ExpertStacks(spec) {
				var bytes int64
				for _, p := range stack.AllParams() {
					bytes += p.Bytes()
				}
				if !yield(float64(bytes), min(float64(spec.TopK)/float64(spec.Count), 1)) {
					return
				}
			}
		}
	}
}

// bytesOfWeight returns the mean size of one weight of the matrices.
func bytesOfWeight(skeleton *meta.Model, dtype string) float64 {
	size := storedBytes(skeleton)
	if f, ok := quantized(dtype); ok && f.Row().Exact {
		return size * codedShare(skeleton)
	} else if ok {
		return float64(f.BlockBytes()) / float64(f.BlockColumns())
	}
	if loaded, err := devicemap.DTypeByteSize(dtype); dtype != "" && err == nil {
		size = min(size, loaded)
	}
	return size
}

// storedBytes returns the mean size of one weight of the matrices as the checkpoint stores them,
// including scales.
func storedBytes(skeleton *meta.Model) float64 {
	var bytes, elements int64
	for _, p := range skeleton.Root.AllParams() {
		if len(p.Shape) >= 2 && p.SameAs == nil {
			bytes, elements = bytes+p.Bytes(), elements+p.Elements()
		}
	}
	if bytes == 0 || elements == 0 {
		return 4
	}
	return float64(bytes) / float64(elements)
}

// scale returns the size of weights loaded as dtype divided by their stored size.
func scale(skeleton *meta.Model, dtype string) float64 {
	return bytesOfWeight(skeleton, dtype) / storedBytes(skeleton)
}

// codedShare returns the size of coded weights divided by that of plain ones, over all matrices.
func codedShare(skeleton *meta.Model) float64 {
	var plain, saved int64
	for _, p := range skeleton.Root.AllParams() {
		if len(p.Shape) >= 2 && p.SameAs == nil {
			plain += p.Bytes()
		}
	}
	for p, n := range skeleton.Root.Coded(meta.CodedShare) {
		saved += p.Bytes() - n
	}
	if plain == 0 {
		return 1
	}
	return 1 - float64(saved)/float64(plain)
}

// quantized reports whether dtype names a format that weights are converted to.
func quantized(dtype string) (meta.QuantFormat, bool) {
	if dtype == meta.QuantCoded.String() {
		return meta.QuantCoded, true
	}
	f, ok := meta.ParseQuantize(dtype)
	return f, ok && f != meta.QuantNone
}
