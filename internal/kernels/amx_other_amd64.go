//go:build !purego && !linux

package kernels

// tilesAllowed: how to ask for the tile registers is known for Linux only.
func tilesAllowed() bool { return false }
