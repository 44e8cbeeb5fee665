package nn

import "github.com/heftai/heft/internal/tensor"

// A Point is a place in a pass that a [Trace] can see.
type Point uint8

// The points.
const (
	PointEmbedding Point = iota // input of the first layer, [rows, hidden]
	PointLayer                  // output of a layer, [rows, hidden]
	PointNorm                   // all rows after the final norm, [rows, hidden]
	PointRouter                 // logits of a router that chooses by them, [rows, experts]
)

// A Trace receives side outputs. Tracing costs time, because the final norm is computed for all
// rows, and changes no result.
type Trace interface {
	// Trace is called during Run with the path of the module. x is float32 memory of the context's
	// backend, valid until Trace returns.
	Trace(at Point, path string, x tensor.Tensor)
}
