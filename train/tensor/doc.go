// Package tensor computes losses and their gradients.
//
// A [Tensor] is an array of float32 with a shape. A [Tape] computes tensors and records how. Its
// methods are operations of the size of a layer (linear, attention, norm, cross-entropy), of
// which losses and small models are composed. A [Parameter] is an array that training changes;
// its values are in a [Storage]. [Tape.Use] puts a parameter on a tape. [Tape.Backward] runs the
// record in reverse, adds to the gradient of each trainable parameter, and frees the record.
// Gradients accumulate until ZeroGrad drops them. A [Module] names its parameters; a bare
// *Parameter is a Module.
//
//	tape := tensor.NewTape(tensor.Options{})
//	w := tensor.NewParameter([]float32{0}, 1, 1)
//	y := tape.Linear(tape.Input(x, 2, 1), tape.Use(w), nil)
//	loss := tape.MSE(y, tape.Input(labels, 2, 1), tensor.Mean)
//	if err := tape.Backward(loss, 1); err != nil { … }
//
// # Errors
//
// Bad input never panics. The tape records the first error: later operations do nothing, and
// Backward, [Tape.Err] and [Tape.Reset] return it. It names the operation and the shapes.
//
// # Results
//
// Threads share work by rows of results, each of which is summed in one fixed order, so results
// do not depend on the number of threads. A record runs in reverse in one fixed order. Semantics
// are torch's unless an operation says otherwise, including ties, empty means (NaN) and ignored
// labels.
//
// Products, attention, norms, rotary embeddings, gates and cross-entropies, and their gradients,
// are operations of internal/backend, which also runs the models of train/model. So are
// convolutions and pools, which those models do not have.
//
// A tape and its tensors must be used by one goroutine at a time. The package does not depend on
// models, data or optimizers.
package tensor
