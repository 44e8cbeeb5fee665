//go:build !purego

package kernels

func available() []Set { return []Set{goSet()} }
