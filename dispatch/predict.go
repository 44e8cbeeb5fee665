package dispatch

import (
	"context"
	"fmt"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch/internal/cost"
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
	m, ok := costs(skeleton, plan, dtype, meta.NoDType, s)
	if !ok {
		return out
	}
	out.LoadSeconds, out.FirstTokenSeconds = m.Load(), m.First(predictedPrompt)
	if seconds := m.Step(1, predictedPrompt); seconds != nil && *seconds > 0 {
		out.TokensPerSecond = known(1 / *seconds)
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
// the disk. LoadSeconds is unknown.
func PredictRun(skeleton *meta.Model, plan devicemap.Plan, dtype string, s MachineSpeed, r Run) ModelSpeed {
	m, ok := costs(skeleton, plan, dtype, r.KVDType, s)
	if !ok {
		return ModelSpeed{}
	}
	out := ModelSpeed{DiskBytesPerToken: known(m.DiskBytes(r.Sequences))}
	if seconds := m.Step(r.Sequences, r.PromptTokens+r.DecodeTokens/2); seconds != nil && *seconds > 0 {
		out.TokensPerSecond = known(float64(r.Sequences) / *seconds)
	}
	out.FirstTokenSeconds = m.Prompt(r.PromptTokens, r.BatchTokens)
	return out
}

// A ProductSpeed is the rate of products of weights, read from memory, with the given number of
// tokens at once.
type ProductSpeed struct {
	Tokens     int     `json:"tokens"`
	Operations float64 `json:"operations_per_second"`
}

// productSpeeds returns the measured rates, in ascending order of tokens.
func productSpeeds(rates []probe.TokensRate) (list []ProductSpeed) {
	for _, r := range rates {
		list = append(list, ProductSpeed{r.Tokens, r.OperationsPerSecond})
	}
	return list
}

// costs returns the costs of passes on a machine. kv is the dtype of the KV cache, or NoDType for
// that of Options without KVDType. costs returns false if a device has no measured speed.
func costs(skeleton *meta.Model, plan devicemap.Plan, dtype string, kv meta.DType, s MachineSpeed) (*cost.Model, bool) {
	products := func(list []ProductSpeed) (out []cost.Product) {
		for _, p := range list {
			out = append(out, cost.Product(p))
		}
		return out
	}
	return cost.New(skeleton, plan, dtype, placement.KVDType(skeleton, kv, PrecisionAuto), cost.Machine{
		MemoryBytes: s.MemoryBytes, DiskBytes: s.DiskBytes,
		Operations32: s.Operations32, Operations16: s.Operations16, Operations8: s.Operations8,
		Products32: products(s.Products32), Products16: products(s.Products16), Products8: products(s.Products8),
		Floats: s.Floats, OperationSeconds: s.OperationSeconds,
	})
}

// BytesPerToken returns the bytes of weights that a pass of one token reads, from any tier. It
// excludes the rows of embedding tables that are not looked up and the experts that are not
// selected. dtype is as in [devicemap.Policy], or the format that weights are converted to.
func BytesPerToken(skeleton *meta.Model, dtype string) (int64, error) {
	return cost.BytesPerToken(skeleton, dtype)
}
