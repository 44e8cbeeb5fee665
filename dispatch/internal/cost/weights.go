package cost

import (
	"iter"
	"math"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/meta"
)

// BytesPerToken returns the bytes of weights that a pass of one token reads, from any tier. It
// excludes the rows of embedding tables that are not looked up and the experts that are not
// selected. dtype is as in [devicemap.Policy], or the format that weights are converted to.
func BytesPerToken(skeleton *meta.Model, dtype string) (int64, error) {
	policy := devicemap.Policy{Kind: devicemap.Manual, Pins: devicemap.NewMap(devicemap.Entry{Device: devicemap.Disk}), DType: dtype}
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
