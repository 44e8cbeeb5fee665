//go:build !amd64 || purego

package isa

// Available lists the variants that this processor runs: the portable one.
func Available() []Variant { return []Variant{Portable()} }
