// Package compress tests that weights which package dispatch codes give the same bits, and that
// plans know the size of coded weights, where they are stored and whether they are faster.
package compress
