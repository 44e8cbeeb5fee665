//go:build !amd64 || purego

package isa

// Available returns the variants that this processor supports: only the portable one.
func Available() []Variant { return []Variant{Portable()} }
