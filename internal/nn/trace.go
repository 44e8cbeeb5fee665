package nn

import "github.com/heftai/heft/internal/tensor"

// A Point is a place in a pass whose value a [Trace] receives.
type Point uint8

// The points.
const (
	PointEmbedding Point = iota // input of the first layer, [rows, hidden]
	PointLayer                  // output of a layer, [rows, hidden]
	PointNorm                   // all rows after the final norm, [rows, hidden]
	PointRouter                 // logits by which a router selects experts, [rows, experts]
)

// A Trace receives intermediate results. Tracing costs time, because the final norm is computed
// for all rows. It does not change results.
type Trace interface {
	// Trace is called during Run with the path of the module. x is float32 memory of the
	// context's backend, valid until Trace returns.
	Trace(at Point, path string, x tensor.Tensor)
}
