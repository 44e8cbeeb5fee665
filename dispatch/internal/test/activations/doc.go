// Package activations tests that activations of package dispatch stay within the plan's count,
// and that long passes, which read each streamed weight once, borrow memory for theirs.
package activations
