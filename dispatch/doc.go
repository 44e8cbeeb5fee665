// Package dispatch runs models: it binds a skeleton to a checkpoint as a plan says, and computes
// logits.
//
//   - A [Model] is a bound model. [Open] makes one of a folder, [New] of a skeleton, a checkpoint
//     and a device map.
//   - A [Sequence] is the state of one request in a model: its tokens and their cached keys and
//     values.
//   - A [Batch] is one forward pass over tokens of some sequences; [Logits] are its results.
//   - [Options] say where weights live and how much memory the model may take. They hold what a
//     caller sets; [Plan] returns them with the sizes that it chose.
//
// Opening reads config and headers, and no weight. [Model.Forward] runs the units of the model one
// after the other: the embedding, each block, the head. A unit's weights are loaded before it runs
// and released after it. Weights of the cpu tier are used in place, in a read-only mapping of the
// checkpoint, until [Model.Promote] moves them to huge pages. Weights of the disk tier are read
// ahead into a bounded ring while the unit before computes.
//
// The placement never changes a result: logits are bitwise the same for every map, batch and
// chunking.
//
// Planning is internal/placement: [Plan], [Planner] and the functions of planning.go call it, and a
// Model keeps the settings of its placement. Predictions are internal/cost, and the GPUs of the
// machine internal/gpus.
//
// One goroutine uses a Model at a time, except where a method says otherwise. The package knows
// token ids; it knows no text, no requests and no HTTP.
package dispatch
