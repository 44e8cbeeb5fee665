// Package meta describes a language model without holding a weight.
//
// Its nouns: a [Config] is a parsed config.json; a [Model] is the skeleton built
// from it, a tree of [Module] nodes with the class names, paths and parameters of
// the transformers 5 module tree; a [Param] knows its shape, its dtype and the
// [Source] tensors of a checkpoint that fill it. [Kind] and the Spec of a node say
// how it runs; the rules that run it are elsewhere, and know no architecture.
//
// The flow: [ReadConfig] parses, [New] looks the model_type up in the table of
// architectures and builds the tree, in microseconds and kilobytes even for a
// trillion parameters, as experts share one Param and sources are patterns. A
// [Builder] puts trees together, those of architectures and a user's own;
// [ReadTree] and [WriteTree] exchange them as JSON.
//
// An architecture is one file, arch_NAME.go, and one line in the table of arch.go: a
// function from the fields of a config.json to calls of a Builder. What llama's
// descendants share is in decoder.go, mixtures in moe.go, rotary embeddings in
// rope.go.
//
// It knows nothing of devices, files or arithmetic. A Model is immutable once
// built and safe for concurrent reading.
package meta

//go:generate go run ../scripts/supported -page ../docs/models.md
