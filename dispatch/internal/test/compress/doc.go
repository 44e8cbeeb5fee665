// Package compress holds tests only: weights that package dispatch codes in fewer bytes give the same bits, and plans know what
// codes take, where they are kept and whether they are faster.
package compress
