// Package engine runs many requests on one model at once (continuous batching).
//
// A [Request] is a prompt of token ids and how to continue it. [Engine.Submit] queues it and
// returns its [Stream], from which the caller reads tokens as events ([Event]). A request has one
// or more choices: continuations of the same prompt that differ in their randomness. Each running
// choice has a slot of the batch and pages of the KV cache.
//
// One goroutine owns the model and all state. It repeats: receive submitted requests, remove
// cancelled ones, admit waiting choices while slots and pages are free, plan, run one forward
// pass, choose a token for each row that reached its end. Choices can therefore join and leave
// between any two passes. A pass gives every decoding choice its token first. The rest of its
// token budget goes to prompts, in chunks: half to the oldest, the rest to those with the fewest
// tokens left.
//
// If no page is free for a decoding choice, the engine preempts the youngest choice: it frees the
// pages, and the choice waits to be recomputed from its tokens. It then continues with the same
// tokens, because the model's results depend neither on the batch nor on chunks.
//
// A background request ([Request.Background]) comes after all others. It is queued after them,
// and its choices count as the youngest, so the engine preempts them as soon as another request
// needs a slot or pages.
//
// A stream buffers events up to a limit. If its reader does not take them, its choices pause, and
// are the first to lose slots and pages to waiting requests. When the reader continues, they
// queue like new ones. A [Constraint] limits which ids a choice may have next.
//
// Clients take turns ([Request.Client]). A client that has waited a while for its first slot gets
// one from the client that has the most.
//
// A cancelled context or [Stream.Close] frees slot and pages before the next pass, and aborts a
// pass that no reader waits for. A failed pass fails the requests in it; the engine continues.
// [Engine.Shutdown] drains, [Engine.Close] aborts. [Engine.Stats] and [Observer] are for metrics.
//
// The package handles token ids, not text: its callers find stop strings and call [Stream.Stop].
// It does not depend on weights or HTTP. [ForDispatch] adapts a dispatch.Model to the interface
// [Model].
package engine
