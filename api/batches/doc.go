// Package batches serves OpenAI's files and batches: POST /v1/files keeps a JSONL file whose lines are requests,
// and POST /v1/batches answers them in the background, each line as its endpoint would.
//
// A [Server] keeps everything in the folder of a store.Store: files, their descriptions, and the state of
// batches. A batch passes validating, in_progress and finalizing to completed, or ends as failed, expired or
// cancelled. While it runs, each answer is appended to its output file, and the lines that have one are known
// by their numbers. So a batch that a killed process has left continues where it was, and no line is in the
// output twice.
//
// Lines run as background requests: requests of clients come before them. As many run at once as the engine has
// slots, so that one pass over the weights serves all of them. The memory of a batch does not depend on the size
// of its file: lines are read when they run, and the memory of each is that of a request.
//
// [Run] runs a file without a server, for commands.
//
// The package knows no models: it calls handlers of HTTP endpoints.
package batches
