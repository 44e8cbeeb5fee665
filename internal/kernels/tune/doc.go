// Package tune finds the fetch plan of this machine: it measures how kernels read memory fastest.
//
// A [Report] is the plan with the speeds that it was chosen by. [Measure] makes one in about 30 ms.
// A [Store] keeps reports in files, one for each [Key]: processor model, variant of the kernels and
// number of threads. [Store.Start] is what a server uses: it applies a stored plan at once. The first
// five starts measure in the background, and the plan is made of the medians of all: a busy neighbour
// makes any single measurement wrong.
//
// The kernels themselves run, each with its candidate patterns in turn, on a small buffer that was
// filled past the caches, so that it is read from memory however large the caches are. It lies in huge
// pages, as weights do: in small pages other patterns are fastest. Rounds of all candidates are
// interleaved, each candidate is compared with the default in the same round, and slow candidates
// leave early. Last, the winners that prefetch are compared with the same at a shorter distance, and
// coded weights with plain ones in more memory.
// Plans change no result, so measuring beside requests is safe; it only slows them down for that time.
package tune
