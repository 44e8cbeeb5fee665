// Package residency keeps a model's weights in memory or streams them from disk when they are
// needed.
//
// A [Store] holds the weights of one model. A [Unit] is a part of the model that runs as a whole.
// Weights move in segments: a parameter, or one expert of a stack, in one format. A segment is in
// one place at a time: in its file, in the file's mapping where the page cache holds it, in
// memory of its own, or in a slot or window while it is in use. Memory is filled by a direct read
// of the checkpoint or of the sidecar, by a copy of the mapping, or by a conversion. All memory
// comes from a [hostmem.Arena]. A [Mover] executes the reads of all stores of a process, several
// at once, those that a pass waits for first.
//
// [New] assigns parameters to tiers by a device map and reads no weight. [Store.Acquire] makes a
// unit's weights usable until [Store.Release]. On the cpu tier a segment is used in the mapping
// if the page cache holds it. Otherwise it is read with direct I/O into memory of its own, where
// it stays. [Store.Warm] does that in the background in the order of use, and [Store.Promote]
// moves mapped segments to memory of their own. Segments then leave the page cache, so that
// nothing is held twice. [Store.Budget] limits this memory while the store is used. With
// [Options.Restream], segments that do not fit into it stream like those of the disk tier, until
// they fit again.
//
// On the disk tier, streams read weights in the order of use, across the end of a pass, into
// small windows of memory. Matrices stream in bands of rows; a band leaves its window when the
// next one is requested, see [Store.NextBand]. Other segments stay until their unit is released.
// The unit starts while its last segments are still being read: [Store.Parts] waits for each. As
// far as [Store.KeepBudget] allows, bands and segments stay in memory outside the windows, evenly
// spread over a pass, until others need the memory.
//
// Experts are read one by one into slots, which a [policy.Cache] assigns. Once a router has
// selected experts, the missing ones are requested at once, and [Store.HoldExperts] returns them
// as they arrive. Where predictions are usually right, the experts of the next block are
// predicted and read ahead; see [Store.Guesses]. Embedding tables are mapped, and a lookup reads
// single rows.
//
// With an [Options.Converter], matrices are converted to its format before their first use. If
// all of them are on the cpu tier, Warm or Acquire converts them in memory. Otherwise they are
// converted into a file next to the checkpoint, the sidecar. Both tiers and later starts then
// read the sidecar instead of the checkpoint. A store that converts in memory begins a sidecar
// when Budget has no room for all converted weights, and streams the others from it.
//
// A [Changing] holds mutable segments, for training. A changed segment is written to a scratch
// file before its memory is freed. A forecast of the uses decides which segments are read ahead
// and which are evicted.
//
// Stores of a process share an arena, a Mover and a [Policy], which keeps all of them within a
// limit.
//
// A Store must be used by one goroutine at a time. Statistics, budgets, Warm and Promote are safe
// for concurrent use. The package does not depend on model rules, requests or tokens.
package residency
