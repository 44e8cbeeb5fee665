// Package model trains the models that serve runs, with the same code.
//
// [MaxMemory] limits the memory of frozen parameters, and [OffloadParameters] that of trained ones.
// Parameters beyond the limit are on disk between uses, like the weights that serve streams.
//
// A [Model] is a meta.Model whose parameters are float32 in memory: Parameters of train/tensor
// under their dotted paths. A tied parameter has its first name. [Load] reads them from a
// checkpoint, and [Model.Checkpoint] returns tensors under the checkpoint's names. Parameters
// frozen by [Freeze] stay in the mapped checkpoint, in their dtype. Only the others have gradients
// and optimizer state.
//
// [Model.Logits], [Model.HiddenStates] and [Model.Loss] each record one operation on a tape. A pass
// runs the compiled program of internal/nn on a backend that records the units with something to
// train. Backward reverses it unit by unit, from the last to the first. Blocks are recorded or
// recomputed, with bit-identical gradients. The head and the loss process a few rows at a time.
// Under the tape's autocast the products of linear maps use weights rounded to bfloat16 or float16,
// and also rounded activations if the processor has instructions for it.
//
// A pass keeps its activations until Backward or Reset of its tape. At most two passes of a tape do
// so. After a third pass, Backward runs the first one again, with bit-identical gradients. Passes
// without Backward therefore do not accumulate memory. Passes within NoGrad keep nothing.
//
// The package knows no architecture by name, no optimizer and no data set.
package model
