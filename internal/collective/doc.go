// Package collective lets the ranks of a training world talk: reduce, gather,
// broadcast, barrier.
//
// A [Comm] is one rank's end of its world. It has the three exchanges that need the
// transport's knowledge (AllReduce, AllGather, Broadcast); everything else, typed
// reductions, objects, barriers, is a function over them. [Launch] makes the world
// that every build has: n ranks as goroutines of this process. [Alone] is the world
// of one.
//
// Every rank must make the same calls in the same order, as in MPI. What ranks do
// not agree on (the operation, a length, the root) is an error on all of them and
// names who differs. A rank that fails, leaves or whose context ends releases the
// others: they get a [*RankError] naming it, and the world stays unusable.
//
// Sums are taken in order of rank, so a result is the same on every rank and in
// every run. The package imports nothing of ours and knows no tensors.
package collective
