// Package record makes a backend reversible.
//
// A [Recorder] wraps a backend and passes operations on. While it records, it remembers each
// operation with the values that its reverse needs. One method has an operation and its reverse
// side by side. [Recorder.Reverse] runs the record from its end.
//
// Gradients are in shadows: each block of memory that the recorder allocated may have a shadow of
// its size, and the gradient of a view of the block is the same view of the shadow. The reverse of
// an operation clears the gradient of its result after use, so between passes shadows are 0. If an
// operation overwrites values that a reverse will read, the recorder copies them first, so rules
// may work in place.
//
// [Weights] says where gradients of weights are. A weight without one is frozen and may have any
// dtype that the backend computes with. The weights that Route and Copy write to the host, and that
// ScatterAdd multiplies by, have gradients on the host.
//
// The package knows no modules, no optimizers and no checkpoints.
package record
