// Package disk tests weights that package dispatch streams from the disk, in bands, columns or
// halves: their order of arrival does not change answers, they are read once per pass, and they
// take no more memory than the plan says.
package disk
