// Package residency brings a model's weights to where they run and lets them go again.
//
// Its nouns: a [Store] holds the weights of one model, each parameter on its tier; a
// [Unit] is what runs as a whole; a load is what a unit (or one expert) needs from disk;
// the ring is the bounded memory that loads pass through.
//
// The flow: [New] sorts parameters into tiers by a device map and reads nothing.
// [Store.Acquire] makes a unit's weights present: those of the cpu tier in place, in the
// checkpoint's mapping; those of the disk tier in a slot of the ring, which a reader has
// filled while the unit before was running. [Store.Release] lets the slot go. Experts
// of the disk tier are read one by one, when a router has chosen them, into a ring of
// their own. Embedding tables of the disk tier stay where they are: a lookup touches a
// few rows, which the mapping brings. [Store.Warm] reads the cpu tier ahead of use.
// With [Options.Quantize] matrices are converted to blocks of integers before their first use:
// in memory, by Warm or by Acquire, or where the disk tier has some of them into a file beside
// the checkpoint (the sidecar), which both tiers then use as if it were the checkpoint's own,
// and the next start too.
//
// A Store is used by one goroutine, but for its statistics and Warm. It knows no rule,
// request or token.
package residency
