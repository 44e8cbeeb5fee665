// Package model trains the models that serve runs, with the same code.
//
// [MaxMemory] limits the memory of frozen parameters, and [OffloadParameters] that of trained ones. Those that do not fit
// are on disk between uses, like the weights that serve streams.
//
// A [Model] is a meta.Model whose parameters are float32 in memory: Parameters of train/tensor
// under their dotted paths, a tied one under its first name. [Load] reads them from a checkpoint,
// and [Model.Checkpoint] returns tensors under the checkpoint's names. With [Freeze] some stay in
// the mapped checkpoint, in their dtype; only the others have gradients and optimizer state.
//
// [Model.Logits], [Model.HiddenStates] and [Model.Loss] are one operation each on a tape. A pass runs
// the compiled program of internal/nn on a recording backend, as far as there is something to train.
// Backward reverses it unit by unit, from the last to the first. Blocks are recorded or recomputed,
// with the same gradients bit by bit. The head and the loss process a few rows at a time. Under the tape's
// autocast the products of linear maps use weights rounded to bfloat16 or float16, and activations
// too if the processor has instructions for it.
//
// A pass keeps its activations until Backward or Reset of its tape. At most two passes of a tape do so:
// with a third one, Backward runs the first of them again, with the same gradients bit by bit. Passes
// that no Backward follows therefore take no more memory; those within NoGrad keep nothing.
//
// The package knows no architecture by name, no optimizer and no data set.
package model
