// Package activations holds tests only: activations of package dispatch stay within what the plan counts, and long passes,
// which read each streamed weight once, borrow memory for theirs.
package activations
