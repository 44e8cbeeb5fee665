// Package lora is low-rank adapters in the files of PEFT: what they add to a model's
// linear maps, where, and how they are read, started, saved and merged.
//
// A [Config] is adapter_config.json. [Config.Match] finds the linear maps of a module tree
// that it names, by PEFT's rules, and gives a [Target] for each. An [Adapter] is the two
// matrices of each target, a [Pair]: for a linear map W of [out, in], A is [rank, in] and B
// is [out, rank], and the map becomes
//
//	y = W·x + Scale · B·(A·x)        Scale = alpha / rank, with rslora alpha / √rank
//
// [Open] reads a folder, [Config.New] starts one to train, [Adapter.Save] writes what PEFT
// loads, and [Adapter.Merge] adds the product to the weights of a checkpoint.
//
// The experts of a mixture, whose maps a tree has in one parameter, are adapted by that
// parameter's name: a Pair then holds those of all experts. A router is one by its weight's.
//
// It knows no backend, no pass and no gradient: internal/nn applies adapters row by row,
// and train teaches them. What would need more than two matrices beside a linear map (DoRA,
// biases, whole modules) is an error that names the field, never half applied.
package lora
