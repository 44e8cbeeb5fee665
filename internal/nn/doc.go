// Package nn runs a module tree: one rule for each kind of module, and nothing that
// knows an architecture by name.
//
// [Compile] resolves every name in the Specs of a tree once and yields a [Program], a
// sequence of units: the embedding, each block, the final norm with the head; or the
// children of a user's own Sequential. A [Context] is the memory of one backend in
// which passes run. A pass is [Context.Begin] with an [Input], then [Unit.Run] for
// each unit in order, then [Context.Logits]. Between units the caller brings weights
// and lets go of them; rules reach them through [Weights], in the pieces and the order
// in which a checkpoint stores them.
//
// Results do not depend on what else is in the pass: for each row every sum has one
// order, so a prompt computed alone, in chunks or among others is the same bit by bit
// as long as the backend keeps its promise of the same.
//
// Rows of a pass may each have an [Adapter], low-rank pairs that are added to the linear
// maps. A row's result is the same whatever the adapters of the others are.
//
// A [Training] runs the same units on a backend that records and reverses them, the last
// one first: a rule that is made of the backend's operations has its backward with its
// forward.
//
// After the first passes nothing is allocated on the Go heap, unless they are recorded.
//
// It knows neither files, devices, schedules nor text. A Program is immutable and may
// be shared; a Context belongs to one goroutine.
package nn
