// Package collective exchanges data between the ranks of a training world: reduce, gather,
// broadcast, barrier.
//
// A [Comm] is one rank's end of its world. It has the operations that depend on the transport:
// AllReduce, ReduceScatter, AllGatherParts and BroadcastFloats for numbers, AllGather and Broadcast
// for bytes. Typed reductions, objects and barriers are functions over them. A [Queue] runs
// operations while its caller computes. [Launch] makes a world of n ranks as goroutines of this
// process. [Over] makes one of a [Link], which sends messages. [Alone] is a world of one.
//
// Every rank must make the same calls in the same order, as in MPI. If ranks disagree on the
// operation, a length or the root, the call fails on all of them and names the ranks that differ. A
// rank that fails, leaves or whose context ends releases the others: they get a [*RankError] that
// names it, and the world stays unusable.
//
// Sums are taken in order of rank, so a result is the same on every rank and in every run. The
// package imports no other package of Heft and knows no tensors.
package collective
