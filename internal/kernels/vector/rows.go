package vector

// rower is implemented by each variant for the operations below, with the same bits. Slices have
// the same length.
type rower interface {
	turnInterleaved(x, cos, sin []float32)
	atMost(dst, x []float32, limit float32)
	timesClamped(dst, g, up []float32, limit float32)
	times(dst, x []float32)
	relu(dst, x []float32)
}

// RotateInterleaved rotates the pairs (x[2i], x[2i+1]) by the angles with the given cosines and
// sines.
func (s *Kernels) RotateInterleaved(x, cos, sin []float32) {
	s.ops.turnInterleaved(x[:2*len(cos)], cos, sin[:len(cos)])
}

// AtMost sets dst[i] = min(x[i], limit). dst may be x.
func (s *Kernels) AtMost(dst, x []float32, limit float32) { s.ops.atMost(dst, x[:len(dst)], limit) }

// TimesClamped sets dst[i] = g[i] · (max(min(up[i], limit), −limit) + 1). dst may be g or up.
func (s *Kernels) TimesClamped(dst, g, up []float32, limit float32) {
	s.ops.timesClamped(dst, g[:len(dst)], up[:len(dst)], limit)
}

// Times multiplies dst by x.
func (s *Kernels) Times(dst, x []float32) { s.ops.times(dst, x[:len(dst)]) }

// ReLU sets dst[i] = max(x[i], 0). dst may be x.
func (s *Kernels) ReLU(dst, x []float32) { s.ops.relu(dst, x[:len(dst)]) }

func (goOps) turnInterleaved(x, cos, sin []float32) {
	for i, c := range cos {
		u, v, s := x[2*i], x[2*i+1], sin[i]
		x[2*i] = float32(u*c) - float32(v*s)
		x[2*i+1] = float32(v*c) + float32(u*s)
	}
}

func (goOps) atMost(dst, x []float32, limit float32) {
	for i, v := range x {
		dst[i] = min(v, limit)
	}
}

func (goOps) timesClamped(dst, g, up []float32, limit float32) {
	for i, v := range g {
		dst[i] = v * (max(min(up[i], limit), -limit) + 1)
	}
}

func (goOps) times(dst, x []float32) {
	for i, v := range x {
		dst[i] *= v
	}
}

func (goOps) relu(dst, x []float32) {
	for i, v := range x {
		dst[i] = max(v, 0)
	}
}
