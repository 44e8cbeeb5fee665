// Package lora reads, creates, saves and merges low-rank adapters (LoRA) in PEFT's file format, and
// matches them to the linear maps of a model.
//
// A [Config] is adapter_config.json. [Config.Match] finds the linear maps of a module tree that it
// names, by PEFT's rules, and returns a [Target] for each. An [Adapter] holds two matrices per
// target, a [Pair]. For a linear map W of [out, in], A is [rank, in], B is [out, rank], and the map
// becomes
//
//	y = W·x + Scale · B·(A·x)        Scale = alpha / rank, with rslora alpha / √rank
//
// With DoRA a pair also has the magnitude m, [out]. Each row of V = W + Scale·B·A is then scaled to
// its length in m:
//
//	y = m/‖V‖ ∘ (V·x)
//
// [Open] reads a folder, [Config.New] creates an adapter to train, [Adapter.Save] writes a folder
// that PEFT loads, and [Adapter.Merge] adds the product to the weights of a checkpoint.
//
// An adapter may also have whole modules (modules_to_save), which take the place of the base model's:
// a [Saved] is a parameter of one.
//
// Stacked experts of an MoE model, which a tree holds in one parameter, are adapted by the name of
// that parameter; their Pair holds the matrices of all experts. A router is adapted by the name of
// its weight in the same way.
//
// The package does not depend on backends, passes or gradients: internal/nn applies adapters row by
// row, and package train trains them. Other features of PEFT (biases, trained tokens) are rejected with
// an error that names the field.
package lora
