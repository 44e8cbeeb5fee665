// Package examples holds small programs, each in a folder of its own, that run without
// arguments or files:
//
//	serve        an HTTP server from Go, with a graceful shutdown
//	generate     text from text: completed, streamed, several at once
//	structured   an answer in JSON that a Go program reads, whatever the model would like to say
//	tools        a tool loop over HTTP: calls with checked arguments, results, an answer
//	stream       a model that runs from the disk, with the same answer
//	plan         where a large model's layers would live, from its config.json
//	hooks        functions around each block, which may fail and be removed
//	accumulate   one global batch, divided over windows and ranks: the same loss and weight
//	causallm     texts of different lengths, weighted by their tokens, on one and two ranks
//	evaluate     metrics on several ranks, without the samples that were repeated
//	trainstep    a Trainer's steps: norms, clipping, and how long a schedule is
//	finetune     an adapter from a file of chats, as train run makes it
//	resnet       ResNet18 of a user's own, whose parameters move at a window's end
//	lora         the demo model taught with an adapter, then served beside it
//
// Its test builds and runs them all.
package examples
