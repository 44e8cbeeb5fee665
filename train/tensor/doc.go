// Package tensor computes losses and their gradients.
//
// A [Tensor] is float32 numbers with a shape. A [Tape] computes tensors and records how. Its
// methods are operations of the size of a layer (linear, attention, norm, cross-entropy), from
// which losses and small models are composed. A [Parameter] is an array that training changes; its
// numbers are in a [Storage]. [Tape.Use] puts a parameter on a tape. [Tape.Backward] runs the
// record in reverse, adds to the gradient of each trainable parameter, and frees the record.
// Gradients are summed until ZeroGrad drops them, which is how accumulation works. A [Module] names
// its parameters; a bare *Parameter is a Module.
//
//	tape := tensor.NewTape(tensor.Options{})
//	w := tensor.NewParameter([]float32{0}, 1, 1)
//	y := tape.Linear(tape.Input(x, 2, 1), tape.Use(w), nil)
//	loss := tape.MSE(y, tape.Input(labels, 2, 1), tensor.Mean)
//	if err := tape.Backward(loss, 1); err != nil { … }
//
// # Errors
//
// Bad input never panics. The first error sticks to the tape: later operations do
// nothing, and Backward, [Tape.Err] and [Tape.Reset] report it. It names the operation
// and the shapes.
//
// # Results
//
// Work is shared among threads by rows of results, each summed in one order, so results
// do not depend on the number of threads. A record runs in reverse in one fixed order.
// Semantics are torch's unless an operation says otherwise; ties, empty means (NaN) and
// ignored labels included.
//
// Products, attention, norms, rotary embeddings, gates and cross-entropies are operations of
// internal/backend, with which the models of train/model run, and so are their gradients. So are
// convolutions and pools, which those models do not have.
//
// A tape and its tensors belong to one goroutine at a time. The package knows nothing of
// models, data or optimizers.
package tensor
