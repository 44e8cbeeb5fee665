// Package batches serves OpenAI's files and batches. POST /v1/files stores a JSONL file whose lines
// are requests. POST /v1/batches answers them in the background, each line as its endpoint would.
//
// A [Server] keeps all data in the folder of a store.Store: files, their descriptions, and the
// state of batches. The states of a batch are validating, in_progress, finalizing and completed; or
// it ends as failed, expired or cancelled. Each answer is appended to the batch's output file
// together with its line number. After a process is killed, the next one reads these numbers and
// continues the batch. No line is in the output twice.
//
// Lines run as background requests, which have a lower priority than those of clients. The number
// of lines that run at once is the number of the engine's slots, so that one pass over the weights
// serves all of them. The memory of a batch does not depend on the size of its file: lines are read
// when they run, and each takes the memory of one request.
//
// [Run] runs a file without a server, for commands.
//
// The package does not depend on models: it calls handlers of HTTP endpoints.
package batches
