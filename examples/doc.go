// Package examples holds small programs, each in a folder of its own, that run without
// arguments or files:
//
//	generate     generates text: a completion, a stream, several chats at once
//	structured   generates JSON that satisfies a schema, and decodes it
//	serve        serves OpenAI's API from Go, with a graceful shutdown
//	tools        runs a tool loop over HTTP: calls with checked arguments, results, an answer
//	stream       streams a model from disk, with the same answer as from memory
//	plan         plans where a large model's layers would live, from its config.json
//	hooks        calls functions before and after each block
//	finetune     trains an adapter from a file of chats with one call, as train run does
//	lora         trains an adapter in a loop, then serves it together with its base
//	accumulate   divides one global batch over accumulation windows and ranks, with the same loss
//	causallm     weights texts of different lengths by their tokens, on one and two ranks
//	evaluate     computes metrics on several ranks, without repeated samples
//	trainstep    steps a Trainer by hand: norms, clipping, the length of a schedule
//	resnet       trains ResNet18, a module of its own, with gradient accumulation and any plugin
//
// The first seven run models, the others train them. The test of the package builds and runs all of them.
package examples
