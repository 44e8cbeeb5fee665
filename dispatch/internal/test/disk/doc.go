// Package disk holds tests only: weights that package dispatch streams from the disk, in bands, columns or halves, arrive in any
// order without a change to the answer, are read once a pass, and take no more memory than the plan says.
package disk
