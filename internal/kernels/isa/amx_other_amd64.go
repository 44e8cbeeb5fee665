//go:build !purego && !linux

package isa

// TilesAllowed returns false: Heft can request the tile registers only on Linux.
func TilesAllowed() bool { return false }
