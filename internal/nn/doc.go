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
// Results do not depend on the rest of the pass: every sum of a row has one fixed order. A prompt
// computed alone, in chunks or batched with others gives bitwise equal results, provided that the
// backend guarantees the same.
//
// Each row of a pass may have an [Adapter]: low-rank pairs added to the linear maps. The result of
// a row does not depend on the adapters of other rows.
//
// A [Training] runs the same units on a backend that records operations, and reverses them from the
// last to the first. Rules composed of backend operations need no separate backward code.
//
// After the first passes nothing is allocated on the Go heap, except while recording.
//
// The package does not depend on files, devices, schedules or text. A Program is immutable and may
// be shared; a Context must be used by one goroutine at a time.
package nn
