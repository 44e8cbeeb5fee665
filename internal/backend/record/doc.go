// Package record records the operations of a backend and runs them backwards.
//
// A [Recorder] wraps a backend and forwards operations to it. While it records, it stores each
// operation with the values that its backward operation needs. One method contains an operation
// and its backward operation. [Recorder.Reverse] runs the record from its end.
//
// Gradients are in shadows: each block of memory that the recorder allocated may have a shadow of
// its size, and the gradient of a view of the block is the same view of the shadow. A backward
// operation clears the gradient of its result after use, so between passes shadows are 0. If an
// operation overwrites values that a backward operation will read, the recorder copies them
// first, so rules may work in place.
//
// [Weights] says where gradients of weights are accumulated. A weight without a gradient is
// frozen and may have any dtype that the backend supports. The weights that Route and Copy write
// to the host, and by which ScatterAdd multiplies, have gradients on the host.
//
// The package does not depend on modules, optimizers or checkpoints.
package record
