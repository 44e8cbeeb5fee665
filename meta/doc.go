// Package meta describes the architecture of a language model without its weights.
//
// A [Config] is a parsed config.json. A [Model] is the skeleton built from it: a tree of [Module]
// nodes with the class names, paths and parameters of the transformers 5 module tree. A [Param]
// has a shape, a dtype and the [TensorSource] tensors of a checkpoint that fill it. [Kind] and
// the Spec of a node say how it runs; package internal/nn implements them without knowing
// architectures.
//
// [ReadConfig] parses a config. [New] looks up its model_type in the table of architectures and
// builds the tree. Even for a trillion parameters this takes microseconds and kilobytes, because
// experts share one Param and sources are patterns. A [Builder] constructs trees, for
// architectures and for users. [ReadTree] and [WriteTree] convert trees from and to JSON.
//
// An architecture is one file, arch_NAME.go, and one line in the table of arch.go: a function
// that maps the fields of a config.json to calls of a Builder. decoder.go has the code that
// llama's descendants share, moe.go that of MoE layers, and rope.go that of rotary embeddings.
//
// The package does not depend on devices, weights or arithmetic. A Model is immutable once built
// and safe for concurrent use.
package meta

//go:generate go run ../scripts/supported -page ../docs/models.md -fixtures ../testdata/golden -known ../testdata/known
