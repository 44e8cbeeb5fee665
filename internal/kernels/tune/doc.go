// Package tune finds the fetch plan of this machine: it measures which way of reading memory is
// fastest for each group of kernels.
//
// A [Report] is a plan with the rates that it was chosen by. [Measure] makes one in about 30 ms.
// A [Store] keeps reports in files, one for each [Key]: processor model, kernel variant and
// number of threads. A server calls [Store.Start], which applies a stored plan at once. The first
// five starts measure in the background, and the plan follows from the medians of all, because
// other load on the machine distorts any single measurement.
//
// The kernels themselves are timed, each with its candidate patterns in turn. They read a small
// buffer that was written with non-temporal stores, so that it comes from memory however large
// the caches are. The buffer lies in huge pages, as weights do, because other patterns are
// fastest in small pages. Rounds of all candidates are interleaved. Each candidate is compared
// with the default in the same round, and slow candidates are dropped early. Finally the winners
// that prefetch are compared with the same patterns at a shorter distance, and coded weights with
// plain ones in a larger buffer.
//
// Plans do not change results. Measuring while requests run is therefore safe, but slows them
// down meanwhile.
package tune
