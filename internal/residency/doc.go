// Package residency keeps a model's weights in memory or streams them from disk when they are
// needed.
//
// A [Store] holds the weights of one model. They move in segments: a parameter, or one expert of a
// stack, in one format. A segment is in one place at a time: its file, the file's mapping where the
// page cache holds it, memory of its own, or a slot or a window while it is held. Sources fill memory:
// a direct read of the checkpoint or of the side-car, a copy of the mapping, a conversion. All
// memory is that of a [hostmem.Arena]. A [Mover] executes the reads of all stores of a process,
// several pieces at once, those that a pass waits for first. A [Unit] is a part of the model that
// runs as a whole.
//
// [New] assigns parameters to tiers by a device map and reads nothing. [Store.Acquire] makes a
// unit's weights usable until [Store.Release]. On the cpu tier a segment is used in the mapping if the
// page cache holds it, and otherwise read past the page cache into memory of its own, which it keeps.
// [Store.Warm] does that in the background in the order of use, and [Store.Promote] moves mapped
// segments to memory of their own. They leave the page cache then, so that nothing is held twice.
// [Store.Budget] limits that memory while the store is used. With [Options.Restream], segments that it has no
// room for stream as those of the disk tier, until there is room again.
//
// On the disk tier, streams read weights in the order of use, around the end of a pass to the next one, into
// small windows of memory. Matrices stream in bands of rows, each of which leaves its window when the next
// one is wanted; see [Store.NextBand]. Other segments stay until their unit is released, which runs while the
// last ones are on their way: [Store.Parts] waits for each. As far as [Store.KeepBudget] has room, bands and
// segments stay in memory beside the windows, evenly spread over a pass, until others need the memory.
//
// Experts are read one by one into slots, which a [policy.Cache] assigns. Once a router has selected
// them, all that are missing are requested at once, and [Store.HoldExperts] returns them as they
// arrive. Those of the next block are guessed and read before that, where guesses are usually right;
// see [Store.Guesses]. Embedding tables are mapped, and a lookup reads single rows.
//
// With an [Options.Converter], matrices are converted to its format before their first use. If
// all of them are on the cpu tier, Warm or Acquire converts them in memory. Otherwise they are
// converted into a file next to the checkpoint, the sidecar. Both tiers and later starts then read
// the sidecar instead of the checkpoint. A store that converts in memory begins a sidecar when Budget
// has no room for all converted weights, and streams those without room from it.
//
// A [Changing] holds segments that may be changed, in training. A changed one is written to a scratch file
// before its memory is freed. A forecast of their uses says which ones are read ahead and which leave.
//
// Stores of a process share an arena, a Mover and a [Policy], which keeps all of them within a limit.
//
// One goroutine at a time uses a Store; statistics, budgets, Warm and Promote are for any goroutine. The
// package does not depend on rules, requests or tokens.
package residency
