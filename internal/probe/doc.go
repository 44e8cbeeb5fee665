// Package probe measures what a machine does in a second: how fast it reads memory,
// multiplies and adds, and reads a file from its disk.
//
// Its nouns: [Rates] are what was measured, each with its unit; [Options] say how many
// threads, which kernels and which files. The flow: [Run] makes each measurement for a
// slice of time and ends within [Limit] in all, or as soon as its context is done.
//
// Memory is read by the widest loads of the processor, as the rate is the machine's and
// not a variant's, and so are the peaks of its kinds of products, in registers; arithmetic
// is done by the variant that was asked for, on weights in its cache. Files are read past the page cache, from random places, as residency reads
// them. Rates of a shared machine wander: two of them compare only where they were taken
// beside each other.
//
// It runs on whoever asks, at no other time, and holds its memory only while it runs. It
// knows nothing of models.
package probe
