package backend

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// HeadGates is implemented by a Backend that gates the outputs of heads in one operation. Other
// backends multiply by ones.
type HeadGates interface {
	// GateHeads computes dst[r][h·d+c] = act(gate[r][h]) · up[r][h·d+c], for heads of d channels.
	// dst and up, which may be the same, are [n, heads·d]; gate is [n, heads].
	GateHeads(dst, gate, up tensor.Tensor, act meta.Activation)
}
