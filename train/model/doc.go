// Package model trains the skeletons that serve.
//
// A [Model] is a meta.Model whose parameters are float32 on the heap, as train/tensor's
// Parameters under their dotted paths; a parameter that is tied has the first of its
// names. [Load] fills one from a checkpoint, [Model.Checkpoint] gives its tensors back
// under the checkpoint's own names. [Model.Logits] and [Model.Loss] walk the module tree
// on a tape: one rule for each kind of module, with everything that tells architectures
// apart taken from the specs.
//
// [New] and [Load] refuse a tree that has no rule here, by the module's path: latent
// attention, attention sinks, soft-capped scores, rotation of neighbouring pairs, experts
// that are chosen by a sigmoid, and norms with weights for each head.
//
// The package knows no architecture by name, no optimizer and no data set.
package model
