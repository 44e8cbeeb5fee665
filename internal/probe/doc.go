// Package probe measures a machine's speed: memory bandwidth, arithmetic throughput, and the read
// rate of a disk.
//
// [Run] makes the measurements. [Options] choose the threads, kernels and files; [Rates] are the
// results, with units. Each measurement takes a fixed slice of time. Run ends within [Limit], or as
// soon as its context is done.
//
// Memory bandwidth is measured with the processor's widest loads, and peak arithmetic with
// operations on registers, because both are limits of the machine and not of a kernel variant.
// Compute rates are those of the CPU backend's products with the chosen variant, as prompts compute them. Files are
// read past the page cache at random offsets, as package residency reads them. Rates vary on a
// shared machine; compare only rates that were measured close together in time.
//
// Run works only on the calling goroutine and those it starts, and frees its memory before it
// returns. The package does not depend on models.
package probe
