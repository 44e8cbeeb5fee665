package dispatch

import (
	"context"
	"math"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/probe"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// MachineSpeed is what a machine does per second with the threads that compute. 0 means unknown.
type MachineSpeed struct {
	MemoryBytes float64 // read from memory
	DiskBytes   float64 // read from the checkpoint's files, past the page cache
	// Operations are multiplications and additions with weights of 32 and of 16 bits.
	Operations32, Operations16 float64
}

// Probe measures the machine with o's threads and kernels. It takes half a second and at most memory
// bytes; with less than 32 MiB the speed of memory stays unknown. It measures the disk by reading
// files of the checkpoint, which may be nil. o.Ledger counts the memory.
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
	s := MachineSpeed{Operations32: r.ComputeFor("float32"), Operations16: r.ComputeFor("bfloat16")}
	if n := len(r.Memory); n > 0 {
		s.MemoryBytes = r.Memory[n-1].BytesPerSecond
	}
	if r.Disk != nil {
		s.DiskBytes = r.Disk.BytesPerSecond
	}
	return s, nil
}

// filesOf returns the paths of a checkpoint's files, of which there are none in memory.
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

// Probe measures the machine with the threads and kernels of m and the disk of its checkpoint. Any
// goroutine may call it. A pass that runs meanwhile is slower, and lowers the result.
func (m *Model) Probe(ctx context.Context, memory int64) (MachineSpeed, error) {
	return Probe(ctx, m.options, m.checkpoint, memory)
}

// predictedPrompt is the prompt of FirstTokenSeconds, in tokens.
const predictedPrompt = 8

// Predict estimates how fast skeleton runs on a machine of speed s with the given plan. dtype is that
// of the plan's policy: "" for the stored dtype, or the format that weights are converted to. If a
// device has no measured speed, only DiskBytesPerToken is set.
//
// The disk bounds loading. The first token reads the weights that the prompt touches from disk, then
// computes. A later token takes as long as the slower of two reads that overlap: its weights from
// memory, and those of the disk tier from disk. The KV cache is not counted.
func Predict(skeleton *meta.Model, plan devicemap.Plan, dtype string, s MachineSpeed) ModelSpeed {
	disk := float64(plan.DiskBytesPerToken)
	out := ModelSpeed{DiskBytesPerToken: &disk}
	for _, d := range plan.Devices {
		if d.Device != devicemap.CPU && d.Device != devicemap.Disk && d.WeightsBytes > 0 {
			return out
		}
	}
	step, err := BytesPerToken(skeleton, dtype)
	if err != nil {
		return out
	}
	weights := float64(step)
	out.LoadSeconds = quotient(float64(plan.Device(devicemap.CPU).WeightsBytes), s.DiskBytes)
	if seconds := slower(quotient(weights, s.MemoryBytes), quotient(disk, s.DiskBytes)); seconds != nil && *seconds > 0 {
		out.TokensPerSecond = known(1 / *seconds)
	}
	touched := weights + experts(skeleton, predictedPrompt)*scale(skeleton, dtype)
	operations, elements := s.Operations32, weights/bytesOfWeight(skeleton, dtype)
	if _, converted := quantized(dtype); !converted && bytesOfWeight(skeleton, dtype) <= 2 {
		operations = s.Operations16
	}
	read := quotient(touched, s.DiskBytes)
	compute := slower(quotient(touched, s.MemoryBytes), quotient(2*elements*predictedPrompt, operations))
	if read != nil && compute != nil {
		out.FirstTokenSeconds = known(*read + *compute)
	}
	return out
}

// quotient is amount ÷ rate; nothing takes no time, and the unknown is nil.
func quotient(amount, rate float64) *float64 {
	switch {
	case amount == 0:
		return new(float64)
	case rate <= 0:
		return nil
	}
	return known(amount / rate)
}

// slower is the longer of two times that pass together, nil where one is unknown.
func slower(a, b *float64) *float64 {
	if a == nil || b == nil {
		return nil
	}
	return known(max(*a, *b))
}

// BytesPerToken are the weights that a pass of one token reads, wherever they lie: all but
// the rows of embedding tables that it does not look up, and the experts that it does not
// choose. dtype is as in [devicemap.Policy], or the format that weights are converted to.
func BytesPerToken(skeleton *meta.Model, dtype string) (int64, error) {
	policy := devicemap.Policy{Kind: devicemap.Manual, Pins: everywhere(devicemap.Disk), DType: dtype}
	if f, ok := quantized(dtype); ok {
		policy.DType, policy.Loaded = "", skeleton.Root.LoadedBytes(f, false)
	}
	plan, err := devicemap.Solve(skeleton, []devicemap.Budget{{Device: devicemap.CPU}}, policy)
	return plan.DiskBytesPerToken, err
}

// experts is what a prompt of n tokens reads of experts beyond what one token does, in
// bytes as stored, if routers choose evenly.
func experts(skeleton *meta.Model, n int) float64 {
	more := 0.0
	for _, m := range skeleton.Root.Walk() {
		spec, ok := m.Spec.(*meta.MoESpec)
		if !ok || m.Find(spec.Experts) == nil || spec.Count == 0 {
			continue
		}
		var bytes int64
		for _, p := range m.Find(spec.Experts).Resolve().AllParams() {
			bytes += p.Bytes()
		}
		one := min(float64(spec.TopK)/float64(spec.Count), 1)
		more += float64(bytes) * (1 - math.Pow(1-one, float64(n)) - one)
	}
	return more
}

// bytesOfWeight is the mean size of one weight of the matrices.
func bytesOfWeight(skeleton *meta.Model, dtype string) float64 {
	size := storedBytes(skeleton)
	if f, ok := quantized(dtype); ok {
		return float64(f.BlockBytes()) / float64(f.BlockColumns())
	}
	if loaded, err := devicemap.DTypeByteSize(dtype); dtype != "" && err == nil {
		size = min(size, loaded)
	}
	return size
}

// storedBytes is the mean size of one weight of the matrices as the checkpoint stores them, codes
// with their scales.
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

// scale is what loading as dtype makes of the bytes as stored.
func scale(skeleton *meta.Model, dtype string) float64 {
	return bytesOfWeight(skeleton, dtype) / storedBytes(skeleton)
}
