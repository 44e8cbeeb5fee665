// Package residency keeps a model's weights in memory or streams them from disk when they are
// needed.
//
// A [Store] holds the weights of one model, with each parameter on a tier: cpu or disk. A [Unit] is
// a part of the model that runs as a whole. A load is what a unit (or one expert) reads from disk.
// A ring is the bounded memory for loads. A [Mover] reads the loads of all stores of a process:
// several pieces at once, those that a pass waits for first.
//
// [New] assigns parameters to tiers by a device map and reads nothing. [Store.Acquire] makes a
// unit's weights resident. Weights on the cpu tier are used in place, in the checkpoint's mapping.
// Weights on the disk tier are in a slot of the ring, which the Mover has filled while the previous
// unit was running; [Store.Release] releases the slot. Experts on the disk tier are read one by
// one into a ring of their own. Once a router has selected them, all that are not there are
// requested at once, and [Store.HoldExperts] returns them as they arrive. Embedding tables on the
// disk tier are mapped: a lookup touches a few rows. [Store.Warm] reads the cpu tier before it is
// used.
//
// With [Options.Quantize], matrices are converted to blocks of integers before their first use. If
// all of them are on the cpu tier, Warm or Acquire converts them in memory. Otherwise they are
// converted into a file next to the checkpoint, the sidecar. Both tiers and later starts then read
// the sidecar instead of the checkpoint.
//
// A Store must be used by one goroutine at a time, except for its statistics and Warm. The package
// does not depend on rules, requests or tokens.
package residency
