//go:build !purego && !linux

package isa

// TilesAllowed reports false: Heft knows how to ask for the tile registers on Linux only.
func TilesAllowed() bool { return false }
