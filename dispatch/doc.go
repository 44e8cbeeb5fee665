// Package dispatch binds a skeleton to a checkpoint and a device map, and runs it.
//
// Its nouns: a [Model] is a bound model; a [Sequence] is one request's state in it,
// its keys and values; a [Batch] is one forward pass, some tokens of some sequences;
// [Logits] is what comes out. [Options] say where weights live and how much memory
// there is.
//
// The flow: [LoadCheckpointAndDispatch] opens a folder, builds the skeleton, plans and
// calls [New], which reads no weight. [Model.Forward] runs the blocks one after the
// other; each block's weights are brought to where it runs just before, and let go
// after. Weights of the cpu tier are used in place, in a read-only mapping of the
// checkpoint; those of the disk tier are streamed through a bounded ring, read ahead
// while the block before computes. Where weights live never changes a result: logits
// are bitwise the same under every map, batch and chunking.
//
// One goroutine uses a Model at a time, except where a method says otherwise. It knows
// token ids, not text, requests or HTTP.
package dispatch
