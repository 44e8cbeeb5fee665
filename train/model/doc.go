// Package model trains the skeletons that serve, by the rules that serve them.
//
// A [Model] is a meta.Model whose parameters are float32 on the heap, as train/tensor's
// Parameters under their dotted paths; a parameter that is tied has the first of its
// names. [Load] fills one from a checkpoint, [Model.Checkpoint] gives its tensors back
// under the checkpoint's own names. With [Freeze] some stay in the checkpoint, mapped and
// in their dtype: gradients and optimizer state exist for the others only.
//
// [Model.Logits] and [Model.Loss] are one operation each on a tape. A pass runs the
// compiled program of internal/nn on a backend that records, as far as there is something
// to train; Backward reverses it unit by unit, from the last to the first. Blocks are
// remembered or computed again, with the same gradients bit by bit. The head and the loss
// go through a few rows at a time. Under the tape's autocast the products of linear maps
// use weights, and where the processor has instructions for it activations, rounded to
// bfloat16 or float16.
//
// The package knows no architecture by name, no optimizer and no data set.
package model
