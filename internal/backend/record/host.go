package record

import (
	"slices"
	"unsafe"

	"github.com/heftai/heft/internal/tensor"
)

// host is the gradient of floats on the host. If their memory is written again later, the newest
// entry counts.
type host struct {
	begin *float32
	grad  []float32
}

// addHost adds a zero gradient for v, which was just written.
func (r *Recorder) addHost(v []float32) []float32 {
	h := host{unsafe.SliceData(v), make([]float32, len(v))}
	r.hosts = append(r.hosts, h)
	return h.grad
}

// hostGradient returns the gradient of v, or nil.
func (r *Recorder) hostGradient(v []float32) []float32 {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(v)))
	for i := len(r.hosts) - 1; i >= 0; i-- {
		h := &r.hosts[i]
		begin := uintptr(unsafe.Pointer(h.begin))
		if n := int(at-begin) / 4; at >= begin && n+len(v) <= len(h.grad) {
			return h.grad[n : n+len(v) : n+len(v)]
		}
	}
	return nil
}

// Derive records a permutation.
func (r *Recorder) Derive(to, from []float32, places []int32) {
	if !r.on {
		return
	}
	source := r.hostGradient(from)
	if source == nil {
		return
	}
	into, places := r.addHost(to), append([]int32(nil), places...)
	r.reverse = append(r.reverse, func() {
		for i, p := range places {
			source[p] += into[i]
		}
	})
}

// ScaleChosen records the gradients of weights and of their scales.
func (r *Recorder) ScaleChosen(weights []float32, chosen []int32, scales []float32, from tensor.Tensor) {
	if !r.on {
		return
	}
	source := r.hostGradient(weights)
	if source == nil {
		return
	}
	before, chosen, by := slices.Clone(weights), slices.Clone(chosen), make([]float32, len(weights))
	for i, c := range chosen {
		by[i] = scales[c]
	}
	into := r.addHost(weights)
	r.reverse = append(r.reverse, func() {
		var slopes []float32
		if g := r.gradientOf(from); !g.IsZero() {
			slopes = g.F32()
		}
		for i, c := range chosen {
			source[i] += into[i] * by[i]
			if slopes != nil {
				slopes[c] += into[i] * before[i]
			}
		}
	})
}
