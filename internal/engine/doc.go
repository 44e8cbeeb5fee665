// Package engine runs many requests on one model at once.
//
// A [Request] is a prompt of token ids and how to go on from it; [Engine.Submit]
// queues it and returns its [Stream], from which the tokens are read as [Event]s. A
// request has one or more choices, continuations of the same prompt that differ by
// their randomness; each takes a slot of the batch.
//
// One goroutine owns the model and all state, and repeats: take in what was
// submitted, let go of what was cancelled, admit waiting choices while slots and
// pages are free, plan, run one forward pass, choose a token for each row that has
// reached its end. So choices join and leave between any two steps. A step gives every
// decoding choice its token first; the rest of its budget goes to prompts, in chunks,
// half to the oldest and then to what is nearest to its end. When no page is free for
// a decoding choice, the youngest choice is preempted: its pages are freed and it
// waits, to be recomputed from its tokens later. By the model's promise that a
// result does not depend on batch or chunking, it goes on with the same tokens.
//
// The flow of the rest: a context that is cancelled, or [Stream.Close], frees slot and
// pages before the next step, and ends a pass that nobody waits for any more. A pass
// that fails fails the requests in it; the engine lives. [Engine.Shutdown] drains,
// [Engine.Close] aborts. [Engine.Stats] and [Observer] are for metrics.
//
// It knows token ids, not text: stop strings and templates belong to its consumers,
// who call [Stream.Stop] when a text has ended. It knows no weights and no HTTP. The
// model is behind the interface [Model]; [ForDispatch] makes one of a dispatch.Model.
package engine
