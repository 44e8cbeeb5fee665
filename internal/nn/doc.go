// Package nn runs a module tree. It has one rule per kind of module and does not depend on
// architecture names.
//
// [Compile] resolves the names in the Specs of a tree once and returns a [Program], a sequence of
// units: the embedding, each block, and the final norm with the head; or the children of a user's
// own Sequential. A [Context] owns the memory of one backend in which passes run. A pass is
// [Context.Begin] with an [Input], then [Unit.Run] for each unit in order, then [Context.Logits].
// Between units the caller loads and releases weights. Rules read them through [Weights], in the
// pieces and the order in which the checkpoint stores them.
//
// The result of a row does not depend on the rest of the pass: every sum of a row has one fixed
// order. A prompt that is computed alone, in chunks, or batched with others gives bitwise equal
// results if the backend guarantees the same.
//
// Each row of a pass may have an [Adapter], which holds low-rank updates (LoRA) of linear layers.
// The result of a row does not depend on the adapters of other rows.
//
// A [Training] runs the same units on a backend that records operations, and then computes the
// backward pass from the last unit to the first. Rules consist of backend operations and need no
// backward code of their own.
//
// After the first passes nothing is allocated on the Go heap, except while recording.
//
// The package does not depend on files, devices, schedules or text. A Program is immutable and
// safe for concurrent use. A Context must be used by one goroutine at a time.
package nn
