// Package placement holds tests only: where package dispatch places a model, and how a prompt is cut, change no bit of an answer, for
// all golden models, for random shapes and formats, under random decisions of what stays in memory and on any number of threads.
package placement
